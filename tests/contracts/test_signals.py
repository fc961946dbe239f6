"""The catalogue: sound rows, exact decimal values, numbers that never change their meaning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Fatal, Rejected
from contracts.signals import Catalogue, Signal, catalogue, parse_catalogue

GOLDEN = Path(__file__).parents[1] / "golden" / "signal_numbers.json"


def test_published_numbers_keep_path_unit_and_resolution() -> None:
    published = json.loads(GOLDEN.read_text())
    for number, (path, unit, exponent) in published.items():
        signal = catalogue().by_number(int(number))
        assert [signal.path, signal.unit, signal.exponent] == [path, unit, exponent]
    unpublished = {signal.number for signal in catalogue()} - {int(number) for number in published}
    assert not unpublished, f"publish {unpublished} with `make fix`"


@given(st.data())
def test_units_are_the_exact_decimal(data: st.DataObject) -> None:
    signal = data.draw(st.sampled_from(sorted(catalogue(), key=lambda s: s.number)))
    scale = 10 ** -min(signal.exponent, 0)
    units = data.draw(st.integers(int(signal.minimum * scale), int(signal.maximum * scale)))
    places = max(-signal.exponent, 0)
    sign, digits = ("-" if units < 0 else ""), str(abs(units)).zfill(places + 1)
    text = f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or '0'}"
    assert signal.from_units(units) == float(text)
    assert signal.to_units(float(text)) == units


def test_largest_sums_stay_exact_in_a_double_free_path() -> None:
    assert all(abs(s.to_units(v)) < 2**52 for s in catalogue() for v in (s.minimum, s.maximum))


def test_unknown_and_repeated_signals_are_refused() -> None:
    with pytest.raises(Rejected, match="unknown_signal"):
        catalogue().by_number(29_999)
    with pytest.raises(Rejected, match="unknown_signal"):
        catalogue().by_path("Vehicle.Nothing")
    speed = catalogue().by_number(1)
    with pytest.raises(Fatal, match="repeats"):
        Catalogue((speed, speed))


def test_a_row_that_is_not_sound_names_its_number() -> None:
    good = (
        '[[signal]]\nnumber = 5\npath = "A.B"\nunit = "m"\ndatatype = "float"\nexponent = 0\nminimum = 0\nmaximum = 1\n'
    )
    good += 'kind = "gauge"\nsource = "x"\ntext = "A thing."\n'
    assert parse_catalogue(good).by_number(5) == Signal(5, "A.B", "m", "float", 0, 0, 1, "gauge", "x", "A thing.")
    for wrong in (good.replace("gauge", "guess"), good.replace("maximum = 1", "maximum = 0"), good + "colour = 1\n"):
        with pytest.raises(Fatal, match="5"):
            parse_catalogue(wrong)
