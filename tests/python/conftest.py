"""On which devices the tests run that make their tensors by placed.py: the CPU, and GPU 0 where PyTorch sees one."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--device", choices=("cpu", "cuda"), help="one device alone")


def pytest_configure(config):
    config.addinivalue_line("markers", "cpu(reason): not on a GPU")
    config.addinivalue_line("markers", "gpu(reason): not on a CPU")
    config.addinivalue_line("markers", "nightly: takes minutes; scripts/test_python.sh leaves it to make nightly")


def devices(config):
    chosen = config.getoption("--device")
    if chosen:
        return [chosen]
    try:
        from torch import cuda
    except ImportError:
        return ["cpu"]
    return ["cpu", "cuda"] if cuda.is_available() else ["cpu"]


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices(metafunc.config), indirect=True)


def pytest_runtest_setup(item):
    """Before the fixtures: those of a module may take long."""
    chosen = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    other = chosen and item.get_closest_marker("cpu" if chosen == "cuda" else "gpu")
    if other:
        pytest.skip(other.args[0])


@pytest.fixture
def device(request, monkeypatch):
    """The device of a test; modules and tests ask for it by usefixtures."""
    placed = pytest.importorskip("placed", reason="without PyTorch: no tensors to place")
    monkeypatch.setattr(placed, "device", request.param)
    return request.param


@pytest.fixture
def fast_everywhere(device, monkeypatch):
    """Attention is Tegula's on every GPU and for every dtype and head, also where PyTorch's would be faster."""
    if device != "cpu":
        attention = pytest.importorskip("tegula.patching.attention")
        monkeypatch.setattr(attention, "has_fast_kernel", lambda *_: True)


@pytest.fixture
def stock_afterwards(fast_everywhere):
    """What a test patches is taken back behind it."""
    yield
    pytest.importorskip("tegula").reset()
