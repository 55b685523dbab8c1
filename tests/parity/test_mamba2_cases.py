"""The cases of the comparison: they cover every option, and both dtypes hold them exactly."""

import inspect

import numpy as np
import pytest

from mamba2_bridge.parity.mamba2_cases import Sizes, mixer_cases, parameter_shapes


def test_cases_cover_every_option():
    init_only = {"A_init_range", "conv_init", "dt_min", "dt_max", "dt_init_floor"}
    pytest.importorskip("torch")
    from mamba2_bridge.torch.reference import Mamba2

    options = set(inspect.signature(Mamba2).parameters) - {"device", "dtype", "scan"} - init_only
    assert {name for case in mixer_cases() for name in case.config} == options
    assert any("init.conv_state" not in case.batch.inputs for case in mixer_cases())


def test_cases_are_exact_in_float32_and_set_by_the_seed():
    first, again, other = mixer_cases(0), mixer_cases(0), mixer_cases(1)
    for a, b, c in zip(first, again, other, strict=True):
        u = [case.batch.inputs["u"] for case in (a, b, c)]
        assert np.array_equal(u[0], u[1])
        assert u[0].size == 0 or not np.array_equal(u[0], u[2])
        for name, shape in parameter_shapes(a.config).items():
            value = a.params[name]
            assert value.shape == shape
            assert np.array_equal(value, value.astype(np.float32)), name
            assert len(np.unique(value)) == value.size, f"{a.name}: {name} repeats a value"


def test_sizes():
    config = {"d_model": 5, "expand": 4, "d_ssm": 12, "headdim": 3, "ngroups": 2, "d_state": 7}
    assert Sizes.of(config) == Sizes(d_inner=20, d_ssm=12, nheads=4, conv_dim=40)
    assert Sizes.of({**config, "d_ssm": None}).d_ssm == 20
