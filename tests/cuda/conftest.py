"""The device of these tests: a GPU's, or with ``--device cpu`` the CPU, to try the tests themselves."""

import pytest

import mamba2_bridge as mb


@pytest.fixture(scope="session")
def device(request):
    """What models compute on; skips where there is no such device."""
    asked = request.config.getoption("--device")
    try:
        mb.Mamba2(mb.Mamba2Config(d_model=8, d_state=4, headdim=4), device=asked)
    except mb.DeviceError as error:
        pytest.skip(str(error))
    return asked
