//! numpy arrays in, tensors inside, numpy arrays out: one copy each way.

use candle_core::{DType, Device, Tensor, Var, WithDType};
use mamba2::Error;
use numpy::ndarray::{ArrayD, IxDyn};
use numpy::{Element, PyArray, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::{OrRaise, bridge_error, raise};

/// A model's element type from its name.
pub fn parse_dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    match name {
        "float32" => Ok(DType::F32),
        "float64" => Ok(DType::F64),
        other => {
            let expected = "'float32' or 'float64'".into();
            Err(raise(py, &Error::DType { what: "dtype".into(), expected, got: format!("{other:?}") }))
        }
    }
}

/// A tensor with the numbers of `value`, anything that numpy takes as an array, of exactly the element type `dtype`.
pub fn to_tensor(what: &str, value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Tensor> {
    Ok(to_variable(what, value, dtype)?.as_detached_tensor())
}

/// The same as a variable, which a gradient can be asked for.
pub fn to_variable(what: &str, value: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Var> {
    let array = as_array(what, value)?;
    let found = float_type(&array);
    if found != Some(dtype) {
        let expected = mamba2::dtype_name(dtype).to_owned();
        let error = Error::DType { what: what.into(), expected, got: type_name(&array)? };
        return Err(raise(value.py(), &error));
    }
    copy(what, &array, dtype)
}

/// A float tensor of whichever of the two element types `value` has.
pub fn to_float_tensor(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let array = as_array(what, value)?;
    let Some(dtype) = float_type(&array) else {
        let error = Error::DType { what: what.into(), expected: "float32 or float64".into(), got: type_name(&array)? };
        return Err(raise(value.py(), &error));
    };
    Ok(copy(what, &array, dtype)?.as_detached_tensor())
}

fn as_array<'py>(what: &str, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = value.py();
    if value.get_type().name()? == "MaskedArray" {
        let message = format!("{what} must be a plain array, got a masked one: its mask would be lost");
        return Err(bridge_error(py, "DTypeError", &message));
    }
    let array = py.import("numpy")?.call_method1("asarray", (value,)).map_err(|error| {
        // numpy refuses ragged lists by a ValueError; other libraries' arrays refuse in their own ways.
        let class = if error.is_instance_of::<PyValueError>(py) { "ShapeError" } else { "DTypeError" };
        let refused = bridge_error(py, class, &format!("{what} can't be taken as an array: {}", error.value(py)));
        refused.set_cause(py, Some(error));
        refused
    })?;
    Ok(array.cast_into::<PyUntypedArray>()?)
}

/// The element type in any byte order.
fn float_type(array: &Bound<'_, PyUntypedArray>) -> Option<DType> {
    match (array.dtype().kind(), array.dtype().itemsize()) {
        (b'f', 4) => Some(DType::F32),
        (b'f', 8) => Some(DType::F64),
        _ => None,
    }
}

fn type_name(array: &Bound<'_, PyUntypedArray>) -> PyResult<String> {
    Ok(array.dtype().str()?.to_string())
}

fn copy(what: &str, array: &Bound<'_, PyUntypedArray>, dtype: DType) -> PyResult<Var> {
    match dtype {
        DType::F32 => copy_as::<f32>(what, array),
        _ => copy_as::<f64>(what, array),
    }
}

fn copy_as<T: Element + WithDType>(what: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Var> {
    let py = array.py();
    // A broadcast array can be of any size without holding memory.
    let mut values = mamba2::memory::reserve(array.len(), what).or_raise(py)?;
    let aligned: bool = array.getattr("flags")?.getattr("aligned")?.extract()?;
    let array = if aligned && array.dtype().is_native_byteorder() != Some(false) {
        array.clone()
    } else {
        array.call_method1("astype", (numpy::dtype::<T>(py),))?.cast_into::<PyUntypedArray>()?
    };
    let array = array.cast::<PyArrayDyn<T>>()?;
    let view = array.try_readonly().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    match view.as_slice() {
        Ok(contiguous) if array.is_c_contiguous() => values.extend_from_slice(contiguous),
        _ => values.extend(view.as_array().iter().copied()),
    }
    Var::from_vec(values, array.shape(), &Device::Cpu).or_raise(py)
}

/// A new array with the numbers of `tensor`.
pub fn to_array<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    match tensor.dtype() {
        DType::F32 => array_of::<f32>(py, tensor),
        _ => array_of::<f64>(py, tensor),
    }
}

fn array_of<'py, T: Element + WithDType>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<T>()).or_raise(py)?;
    let array = ArrayD::from_shape_vec(IxDyn(tensor.dims()), values)
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(PyArray::from_owned_array(py, array).into_any())
}
