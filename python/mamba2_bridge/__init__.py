"""Mamba-2 in Rust on Candle: forward, backward and every parameter, from Python."""
