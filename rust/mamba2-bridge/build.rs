//! Links the CUDA build to the driver's library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_some() {
        // cudarc names no library of the driver's, and a linker leaves out what it believes nobody needs.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-cdylib-link-arg=-lcuda");
    }
}
