from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bert_core import CheckpointError
from service.engine.sentence_files import SentenceFiles, read_sentence_files

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules."


def write(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_modules(folder: Path, *modules: tuple[str, str]) -> None:
    listed = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (kind, path) in enumerate(modules)]
    write(folder, "modules.json", listed)


def write_usual_modules(folder: Path, *more: tuple[str, str]) -> None:
    write_modules(folder, (f"{OLD}Transformer", ""), (f"{OLD}Pooling", "1_Pooling"), *more)


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_sentence_files(folder)
    assert caught.value.path == folder
    return list(caught.value.problems)


def flags(*on: str, others: tuple[str, ...] = ("cls_token", "mean_tokens", "max_tokens")) -> dict[str, bool]:
    return {f"pooling_mode_{name}": name in on for name in (*others, *on)}


def test_a_folder_without_such_files(tmp_path: Path) -> None:
    files = read_sentence_files(tmp_path)
    assert files == SentenceFiles()
    assert (files.pooling, files.max_length, files.prompts) == (None, None, {})


def test_the_default_checkpoint() -> None:
    folder = Path(__file__).parents[3] / "weights" / "minilm-l6-bert-en"
    assert read_sentence_files(folder) == SentenceFiles(pooling="mean", max_length=256)


def test_everything_there_is(tmp_path: Path) -> None:
    write_usual_modules(tmp_path)
    write(tmp_path, "1_Pooling/config.json", {"word_embedding_dimension": 20, **flags("cls_token")})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 41, "do_lower_case": False})
    prompts = {"query": "Frage: ", "document": ""}
    write(tmp_path, "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "query"})
    assert read_sentence_files(tmp_path) == SentenceFiles(
        pooling="cls", max_length=41, prompts=prompts, default_prompt_name="query"
    )


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (flags("cls_token"), "cls"),
        (flags("mean_tokens"), "mean"),
        (flags("max_tokens"), "max"),
        (flags(), "mean"),
        ({}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "max", **flags("mean_tokens")}, "max"),
        ({"pooling_mode": ["mean"], "include_prompt": True}, "mean"),
    ],
)
@pytest.mark.parametrize("with_modules", [True, False])
def test_pooling_kinds(tmp_path: Path, config: dict[str, Any], pooling: str, with_modules: bool) -> None:
    write(tmp_path, "1_Pooling/config.json", config)
    if with_modules:
        write_usual_modules(tmp_path)
    files = read_sentence_files(tmp_path)
    assert files.pooling == pooling


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        (flags("mean_sqrt_len_tokens"), "mean_sqrt_len_tokens"),
        (flags("weightedmean_tokens"), "weightedmean"),
        (flags("lasttoken"), "lasttoken"),
        (flags("cls_token", "mean_tokens"), "cls and mean"),
        (flags("of_tomorrow"), "pooling_mode_of_tomorrow"),
        (flags("mean_tokens", "of_tomorrow"), "mean and pooling_mode_of_tomorrow"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["max", "mean"]}, "max and mean"),
        ({"pooling_mode": []}, ""),
        ({"pooling_mode": None}, "None"),
        ({"pooling_mode": "mean\nmean"}, r"'mean\nmean'"),
    ],
)
def test_pooling_kinds_that_we_lack(tmp_path: Path, config: dict[str, Any], asked: str) -> None:
    write(tmp_path, "1_Pooling/config.json", config)
    assert problems_of(tmp_path) == [
        f"1_Pooling/config.json: pooling by {asked} is not supported; allowed is one of cls, mean, max"
    ]


def test_prompts_left_out_of_the_pooling(tmp_path: Path) -> None:
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("1_Pooling/config.json: include_prompt false")


def test_modules_with_new_names_and_other_folders(tmp_path: Path) -> None:
    write_modules(
        tmp_path,
        ("sentence_transformers.base.modules.transformer.Transformer", ""),
        (f"{NEW}pooling.Pooling", "7_Pooling"),
        (f"{NEW}normalize.Normalize", "2_Normalize"),
    )
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "max"})
    write(tmp_path, "7_Pooling/config.json", {"pooling_mode": "cls"})
    files = read_sentence_files(tmp_path)
    assert files.pooling == "cls"


def test_a_transformer_alone_says_nothing_of_pooling(tmp_path: Path) -> None:
    write_modules(tmp_path, (f"{OLD}Transformer", ""))
    assert read_sentence_files(tmp_path) == SentenceFiles()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([(f"{OLD}Dense", "2_Dense")], "Transformer > Pooling > Dense"),
        ([(f"{OLD}Dense", "2_Dense"), (f"{OLD}Normalize", "3_N")], "Transformer > Pooling > Dense > Normalize"),
        ([(f"{OLD}Normalize", "2_N"), (f"{OLD}Normalize", "3_N")], "Transformer > Pooling > Normalize > Normalize"),
        ([("my_code.Normalize", "2_N")], "Transformer > Pooling > my_code.Normalize"),
        ([("sentence_transformers_fork.Normalize", "2_N")], "Pooling > sentence_transformers_fork.Normalize"),
        ([(f"{OLD}LayerNorm", "2_L")], "Transformer > Pooling > LayerNorm"),
    ],
)
def test_modules_that_we_lack(tmp_path: Path, more: list[tuple[str, str]], named: str) -> None:
    write_usual_modules(tmp_path, *more)
    write(tmp_path, "1_Pooling/config.json", flags("mean_tokens"))
    (problem,) = problems_of(tmp_path)
    assert f"{named} is not supported" in problem


@pytest.mark.parametrize("kinds", [[], ["Pooling"], ["Transformer", "Normalize"], ["Pooling", "Transformer"]])
def test_modules_in_an_order_that_we_lack(tmp_path: Path, kinds: list[str]) -> None:
    write_modules(tmp_path, *((OLD + kind, "1_Pooling" if kind == "Pooling" else "") for kind in kinds))
    write(tmp_path, "1_Pooling/config.json", flags("mean_tokens"))
    (problem,) = problems_of(tmp_path)
    assert problem.startswith(f"modules.json: {' > '.join(kinds)} is not supported; allowed is Transformer, then")


def test_a_transformer_in_a_folder_of_its_own(tmp_path: Path) -> None:
    write_modules(tmp_path, (f"{OLD}Transformer", "0_Transformer"))
    (problem,) = problems_of(tmp_path)
    assert "'0_Transformer'" in problem


@pytest.mark.parametrize("path", ["../1_Pooling", "/1_Pooling", "..", "a\\b"])
def test_paths_that_leave_the_folder(tmp_path: Path, path: str) -> None:
    write(tmp_path, "1_Pooling/config.json", flags("mean_tokens"))
    folder = tmp_path / "folder"
    write_modules(folder, (f"{OLD}Transformer", ""), (f"{OLD}Pooling", path))
    assert problems_of(folder) == [f"modules.json: path {path!r} must be a plain name of a folder in this one"]


@pytest.mark.parametrize("modules", [{}, "x", [1], [{"type": "x"}], [{"type": 1, "path": ""}]])
def test_modules_that_are_no_list_of_modules(tmp_path: Path, modules: object) -> None:
    write(tmp_path, "modules.json", modules)
    assert problems_of(tmp_path) == ["modules.json: must be a list of objects with a type and a path, both text"]


@pytest.mark.parametrize("length", [0, 2, -5, 12.5, "256", True, [41]])
def test_lengths_that_are_none(tmp_path: Path, length: object) -> None:
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": length})
    (problem,) = problems_of(tmp_path)
    assert problem.startswith(f"sentence_bert_config.json: max_seq_length {length!r} must be")


def test_no_length(tmp_path: Path) -> None:
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": None})
    assert read_sentence_files(tmp_path).max_length is None


@pytest.mark.parametrize(
    ("tokenizer", "fine"), [({}, True), ({"do_lower_case": True}, True), ({"do_lower_case": False}, False)]
)
def test_lower_casing_that_the_tokenizer_does_not_do(tmp_path: Path, tokenizer: dict[str, bool], fine: bool) -> None:
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 41, "do_lower_case": True})
    write(tmp_path, "tokenizer_config.json", tokenizer)
    if fine:
        assert read_sentence_files(tmp_path).max_length == 41
    else:
        (problem,) = problems_of(tmp_path)
        assert problem.startswith("sentence_bert_config.json: do_lower_case is true")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"prompts": ["a"]}, "prompts must be an object of names to texts"),
        ({"prompts": {"query": 1}}, "prompts must be an object of names to texts"),
        (
            {"default_prompt_name": "query"},
            "default_prompt_name 'query' must be null or the name of one of its prompts",
        ),
        (
            {"prompts": {"a": ""}, "default_prompt_name": ["a"]},
            "default_prompt_name ['a'] must be null or the name of one of its prompts",
        ),
    ],
)
def test_prompts_that_are_none(tmp_path: Path, config: dict[str, Any], problem: str) -> None:
    write(tmp_path, "config_sentence_transformers.json", config)
    assert problems_of(tmp_path) == [f"config_sentence_transformers.json: {problem}"]


def test_absent_prompts(tmp_path: Path) -> None:
    write(tmp_path, "config_sentence_transformers.json", {"prompts": None, "default_prompt_name": None})
    assert read_sentence_files(tmp_path) == SentenceFiles()


def test_everything_is_told_at_once(tmp_path: Path) -> None:
    write_usual_modules(tmp_path, (f"{OLD}Dense", "2_Dense"))
    (tmp_path / "sentence_bert_config.json").write_text("{")
    (tmp_path / "config_sentence_transformers.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert [problem.split(": ")[0] for problem in problems_of(tmp_path)] == [
        "modules.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
    ]


def test_a_list_of_modules_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("modules.json: is empty")
