"""The errors: one family, each also what Python would have raised."""

import pickle

import pytest

import mamba2_bridge as mb
from mamba2_bridge import exceptions

CONTRACT = {
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "ConfigError": ValueError,
    "StateDictError": KeyError,
    "MissingGradientError": RuntimeError,
    "GraphError": RuntimeError,
    "DeviceError": RuntimeError,
    "InternalError": RuntimeError,
    "CheckpointError": ValueError,
    "ParityError": AssertionError,
}


@pytest.mark.parametrize("name", CONTRACT)
def test_an_error_is_of_the_family_and_of_its_kind(name):
    error = getattr(mb, name)
    assert issubclass(error, mb.Mamba2BridgeError)
    assert issubclass(error, CONTRACT[name])
    assert error is getattr(exceptions, name)
    assert error.__doc__


@pytest.mark.parametrize("name", CONTRACT)
def test_a_message_is_printed_as_it_is_and_survives_a_pickle(name):
    error = pickle.loads(pickle.dumps(getattr(mb, name)("D has shape 'x'")))
    assert type(error) is getattr(mb, name)
    assert str(error) == "D has shape 'x'"


def test_the_family_has_no_other_members():
    classes = {c.__name__ for c in vars(exceptions).values() if isinstance(c, type)}
    assert classes == {*CONTRACT, "Mamba2BridgeError", "AuditError", "DataError", "NonFiniteError"}
    assert classes <= set(mb.__all__)
