import pytest

import accredit


@pytest.mark.parametrize("name", accredit.__all__)
def test_public_name_is_there(name: str) -> None:
    assert getattr(accredit, name) is not None


def test_public_names_are_listed() -> None:
    assert set(accredit.__all__) <= set(dir(accredit))


def test_public_names_are_those_of_their_rooms() -> None:
    assert accredit.ToolEnv is accredit.envs.ToolEnv
    assert accredit.Trajectory is accredit.credit.Trajectory


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ToolEnvironment'"):
        _ = accredit.ToolEnvironment
