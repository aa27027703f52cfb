from importlib.metadata import EntryPoint

from mesh.doctor.examiners import examiners
from mesh.doctor.findings import Health, Patient


def test_all_packages_are_asked():
    assert {one.__name__ for one in examiners()} == {"mesh.doctor.machine", "engines.doctor.examiner"}


def test_a_package_that_cannot_be_loaded_is_broken_and_keeps_nothing_from_starting(monkeypatch):
    entry = EntryPoint("odd", "no_such_package", "meshserve.doctor")
    monkeypatch.setattr("mesh.doctor.examiners.entry_points", lambda group: [entry])
    _, odd = examiners()
    assert list(odd.glance(Patient())) == []
    [found] = odd.examine(Patient())
    assert (found.about, found.health) == ("odd", Health.BROKEN)
