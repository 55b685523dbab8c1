//! Files and sets of parameters: all of it or none.
#![allow(clippy::unwrap_used)] // a test's panic is its verdict

mod common;

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use common::values;
use indexmap::IndexMap;
use mamba2::{Architecture, Error, Mamba2Config, Model, files};

fn model(seed: u64) -> Model {
    let config = Mamba2Config { d_state: 4, headdim: 4, ..Mamba2Config::new(8) };
    Model::new(&Architecture::Mixer(config), DType::F32, &Device::Cpu, seed).unwrap()
}

fn all(model: &Model) -> Vec<Vec<f64>> {
    model.parameters().iter().map(|(_, var)| values(var)).collect()
}

#[test]
fn what_is_saved_loads_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let saved = model(1);
    saved.parameters().save(&path, HashMap::from([("format".into(), "mamba2_bridge".into())])).unwrap();
    let mut loaded = model(2);
    let report = loaded.parameters_mut().load(&path, None, true, false).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty());
    assert_eq!(all(&saved), all(&loaded));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was left beside the file");
}

#[test]
fn one_wrong_tensor_and_nothing_is_loaded() {
    let mut model = model(1);
    let before = all(&model);
    let good = |model: &Model| -> IndexMap<String, Tensor> {
        let ones = |(name, var): (&str, &candle_core::Var)| (name.to_owned(), var.ones_like().unwrap());
        model.parameters().iter().map(ones).collect()
    };
    let ones = |shape: usize, dtype: DType| Tensor::ones(shape, dtype, &Device::Cpu).unwrap();
    let nan = (ones(4, DType::F32) * f64::NAN).unwrap();
    let faults: [(&str, Tensor, &str); 4] = [
        ("A_log", ones(5, DType::F32), "A_log has shape (5,), the model needs (4,); nothing was loaded"),
        ("D", ones(4, DType::F64), "D must be float32, got float64"),
        ("dt_bias", nan, "dt_bias holds 4 NaN or infinite values; nothing was loaded (allow_nonfinite accepts them)"),
        ("A_lgo", ones(4, DType::F32), "unexpected: A_lgo; nothing was loaded"),
    ];
    for (name, value, message) in faults {
        let mut values = good(&model);
        values.insert(name.into(), value);
        let error = model.parameters_mut().set(&values, true, false).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(all(&model), before);
    }
    let mut values = good(&model);
    values.shift_remove("D");
    let error = model.parameters_mut().set(&values, true, false).unwrap_err();
    assert_eq!(error.to_string(), "missing: D; nothing was loaded");
    let report = model.parameters_mut().set(&values, false, false).unwrap();
    assert_eq!(report.missing, ["D"]);
}

#[test]
fn a_damaged_file_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let mut model = model(1);
    let before = all(&model);
    model.parameters().save(&path, HashMap::new()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for bytes in [&whole[..0], &whole[..4], &whole[..100], &whole[..whole.len() - 1], b"{}"] {
        std::fs::write(&path, bytes).unwrap();
        let error = model.parameters_mut().load(&path, None, true, false).unwrap_err();
        assert!(matches!(error, Error::Checkpoint { .. }), "{} bytes: {error}", bytes.len());
        assert_eq!(all(&model), before);
    }
    let error = model.parameters_mut().load(&folder.path().join("nowhere"), None, true, false).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound), "{error}");
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("occupied");
    std::fs::create_dir(&path).unwrap(); // a file can't be renamed over a folder
    assert!(matches!(files::write(&path, b"new"), Err(Error::Io { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let missing = folder.path().join("no/such/folder/file");
    assert!(matches!(files::write(&missing, b"new"), Err(Error::Io { .. })));
}

#[test]
fn folders_are_exchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (staged, target) = (folder.path().join("staged"), folder.path().join("target"));
    for (path, contents) in [(&staged, "new"), (&target, "old")] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("file"), contents).unwrap();
    }
    files::replace_folder(&staged, &target).unwrap();
    assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "new");
    assert!(!staged.exists());
}
