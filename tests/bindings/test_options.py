"""A model's options: dtype, device, seed, kernels, and what a model says of itself."""

import numpy as np
import pytest

import mamba2_bridge as mb
from assertions import assert_results_close
from native_models import assert_same, config, forecaster, mixer, noise, run


@pytest.mark.parametrize("dtype", ["float64", np.float64, np.dtype("float64"), np.dtype("<f8")])
def test_a_dtype_may_be_numpys(dtype):
    model = mb.Mamba2(config(), dtype=dtype)
    assert model.dtype == "float64"
    assert model(np.zeros((1, 2, 8))).dtype == np.float64


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "int64", "f8", "double", "", None, 64, np.int32, bool]
)
def test_another_dtype(dtype):
    with pytest.raises(mb.DTypeError, match="dtype must be 'float32' or 'float64', got "):
        mb.Mamba2(config(), dtype=dtype)


def test_the_default_is_float32_on_the_cpu():
    model = mb.Mamba2(config())
    assert (model.dtype, model.device) == ("float32", "cpu")


@pytest.mark.parametrize("device", ["gpu", "mps", "", "cpu:0", "CPU", None, 0])
def test_another_device(device):
    with pytest.raises(mb.DeviceError, match="device must be 'cpu' or 'cuda:0', got "):
        mb.Mamba2(config(), device=device)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cudagraph"])
def test_a_device_that_is_not_there(device):
    if device == "cuda:0" and cuda_is_there():
        pytest.skip("a CUDA build has the device")
    with pytest.raises(mb.DeviceError, match="device"):
        mb.Mamba2(config(), device=device)


def cuda_is_there():
    try:
        mb.Mamba2(config(), device="cuda:0")
    except mb.DeviceError:
        return False
    return True


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", None, True])
def test_another_seed(seed):
    with pytest.raises(mb.ConfigError, match=r"seed must be an integer from 0 to below 2\*\*64, got "):
        mb.Mamba2(config(), seed=seed)


def test_kernels_change_nothing():
    u = noise(2, 20, 8)
    fused = mb.Mamba2(config(), "float64", kernels="fused")
    composed = mb.Mamba2(config(), "float64", kernels="composed")
    assert_results_close("fused", run(fused, u), run(composed, u), "float64")


def test_auto_is_fused_on_a_cpu(request):
    if request.config.getoption("--kernels") == "composed":
        pytest.skip("auto means composed in this run")
    u = noise(2, 20, 8, dtype="float32")
    auto, fused = (mb.Mamba2(config(), kernels=kernels) for kernels in ("auto", "fused"))
    assert_same(run(auto, u), run(fused, u))


@pytest.mark.parametrize("kernels", ["triton", "", None, True, ["auto"]])
def test_other_kernels(kernels):
    with pytest.raises(mb.ConfigError, match="kernels"):
        mb.Mamba2(config(), kernels=kernels)


@pytest.mark.parametrize("cfg", [None, {}, config().to_dict(), 8, forecaster().config])
def test_another_configuration(cfg):
    with pytest.raises(mb.ConfigError, match="cfg must be a Mamba2Config, got "):
        mb.Mamba2(cfg)
    if not isinstance(cfg, mb.Mamba2ForecasterConfig):
        with pytest.raises(mb.ConfigError, match="cfg must be a Mamba2ForecasterConfig, got "):
            mb.Mamba2Forecaster(cfg)
    with pytest.raises(mb.ConfigError, match="cfg must be a Mamba2ForecasterConfig, got Mamba2Config"):
        mb.Mamba2Forecaster(config())


@pytest.mark.parametrize("name", ["config", "dtype", "device", "varmap"])
def test_what_a_model_is_does_not_change(name):
    model = mixer()
    with pytest.raises(AttributeError):
        setattr(model, name, getattr(model, name))


def test_a_model_says_what_it_is():
    model = mixer()
    assert (
        repr(model)
        == f"Mamba2({config()!r}, dtype='float64', device='cpu', parameters={model.num_parameters():,})"
    )
    assert repr(forecaster("float32")).startswith(
        "Mamba2Forecaster(Mamba2ForecasterConfig(mixer=Mamba2Config("
    )


def test_models_share_a_base():
    assert isinstance(mixer(), mb.Model)
    assert isinstance(forecaster(), mb.Model)
    with pytest.raises(TypeError):
        mb.Model(config())


@pytest.mark.parametrize("n", [0, -1, 1025, 2**70, 1.5, "2", None, True])
def test_a_number_of_threads_that_is_none(n):
    before = mb.get_num_threads()
    with pytest.raises(mb.ConfigError, match="the number of threads must be from 1 to 1024, got "):
        mb.set_num_threads(n)
    assert mb.get_num_threads() == before


def test_the_number_of_threads_can_be_set():
    before = mb.get_num_threads()
    try:
        for n in (1, 5, np.int64(2)):
            mb.set_num_threads(n)
            assert mb.get_num_threads() == n
    finally:
        mb.set_num_threads(before)
