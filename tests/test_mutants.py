from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, MutantError, check_baseline, judge, main, mutated, run_all
from tests.mutations import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_made_and_names_its_tests(mutant: Mutant) -> None:
    source = mutated(mutant, root=ROOT)
    compile(source, mutant.file, "exec")
    assert source != (ROOT / mutant.file).read_text(encoding="utf-8")
    for test in mutant.tests:
        path, _, function = test.partition("::")
        assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")
        assert (ROOT / path).is_file()


def test_there_are_enough_of_them_and_each_has_its_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 20


MUTANT = Mutant(name="twice", file="thing.py", old="return 2", new="return 3", tests=("test_thing.py",))
TREE = {
    "thing.py": "def two():\n    return 2\n\ndef four():\n    return 4\n",
    "test_thing.py": "from thing import four, two\n\ndef test_two():\n    assert two() == 2\n",
    "weights/model.txt": "large",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_mutant_that_breaks_a_test_is_caught_and_the_tree_stays_as_it_is(tree: Path) -> None:
    assert judge(MUTANT, root=tree)[0] == "caught"
    assert {name: (tree / name).read_text(encoding="utf-8") for name in TREE} == TREE


def test_survivors_and_broken_mutants_are_counted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    survivor = replace(MUTANT, name="untested", old="return 4", new="return 5")
    no_module = replace(MUTANT, name="no module", old="def two", new="def deux")
    gone = replace(MUTANT, name="gone", old="return 7")
    ambiguous = replace(MUTANT, name="ambiguous", old="return")
    assert run_all([MUTANT, survivor, no_module, gone, ambiguous], root=tree) == 4
    lines = [line for line in capsys.readouterr().out.splitlines() if " s  " in line or "caught" in line]
    verdicts = [line.partition(" s  ")[2].split("\n")[0] for line in lines[:-1]]
    assert verdicts == [
        "caught",
        "SURVIVED",
        "BROKEN: pytest ended with 2:",
        "BROKEN: the old text occurs 0 times in thing.py, not once",
        "BROKEN: the old text occurs 2 times in thing.py, not once",
    ]
    assert lines[-1] == "1 of 5 mutants were caught"


def test_tests_that_fail_without_a_mutant_say_nothing(tree: Path) -> None:
    (tree / "test_thing.py").write_text("def test_two():\n    assert False\n", encoding="utf-8")
    with pytest.raises(MutantError, match="^the tests do not pass without a mutant"):
        check_baseline([MUTANT], root=tree)


def test_a_word_that_no_name_holds_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such mutant"]) == 2
    assert "no mutant's name holds any of: no such mutant" in capsys.readouterr().err
