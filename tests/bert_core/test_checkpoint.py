from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file

import bert_core.checkpoint
from bert_core.checkpoint import CheckpointError, load_pretrained, save_pretrained
from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining, PreTrainingOutput
from bert_core.weight_names import DECODER_BIAS, DECODER_WEIGHT, PREDICTION_BIAS, WORD_EMBEDDINGS
from tests.bert_core.folders import (
    Tensors,
    same_parameters,
    tensors_of,
    write_pickle,
    write_safetensors,
    write_shards,
)
from tests.tiny import TINY_CONFIG, random_ids, random_segments, tiny_config, tiny_model

UNTIED = tiny_config(tie_word_embeddings=False)


def answer(model: BertForPreTraining) -> PreTrainingOutput:
    with torch.inference_mode():
        output: PreTrainingOutput = model(random_ids(), token_type_ids=random_segments())
    return output


def loaded_as_written(folder: Path, tensors: Tensors, config: BertConfig = TINY_CONFIG) -> BertForPreTraining:
    return load_pretrained(write_safetensors(folder, tensors, config))


@pytest.fixture(scope="module")
def model() -> BertForPreTraining:
    return tiny_model()


@pytest.fixture
def tensors(model: BertForPreTraining) -> Tensors:
    return tensors_of(model)


class TestLayouts:
    def test_one_safetensors_file(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors) -> None:
        loaded = load_pretrained(str(write_safetensors(tmp_path, tensors, TINY_CONFIG)))
        assert same_parameters(loaded, model)
        assert loaded.heads == Heads()
        assert not loaded.training
        assert all(parameter.requires_grad for parameter in loaded.parameters())
        assert loaded.mlm is not None
        assert loaded.mlm.decoder.weight is loaded.bert.embeddings.token.weight

    @pytest.mark.parametrize("zipped", [True, False])
    def test_one_pickle(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, zipped: bool) -> None:
        assert same_parameters(load_pretrained(write_pickle(tmp_path, tensors, TINY_CONFIG, zipped=zipped)), model)

    @pytest.mark.parametrize(
        "wrap", [lambda t: {"state_dict": t}, lambda t: {n: torch.nn.Parameter(v) for n, v in t.items()}]
    )
    def test_wrapped_pickles(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, wrap: Any) -> None:
        assert same_parameters(load_pretrained(write_pickle(tmp_path, wrap(tensors), TINY_CONFIG)), model)

    @pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
    def test_shards(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, name: str) -> None:
        write_shards(tmp_path, tensors, TINY_CONFIG, name=name)
        assert same_parameters(load_pretrained(tmp_path), model)

    def test_symbolic_links_into_another_folder(
        self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors
    ) -> None:
        blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
        snapshot.mkdir()
        write_shards(blobs, tensors, TINY_CONFIG, name="model.safetensors")
        for number, file in enumerate(blobs.iterdir()):
            file.rename(blobs / f"{number}")
            (snapshot / file.name).symlink_to(Path("..") / "blobs" / f"{number}")
        assert same_parameters(load_pretrained(snapshot), model)

    def test_safetensors_win_over_pickles_and_it_is_logged(
        self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_pickle(tmp_path, tensors_of(tiny_model(seed=1)), TINY_CONFIG)
        assert same_parameters(loaded_as_written(tmp_path, tensors), model)
        assert "pytorch_model.bin" in caplog.text

    def test_a_broken_safetensors_file_is_not_replaced_by_a_pickle(self, tmp_path: Path, tensors: Tensors) -> None:
        write_pickle(tmp_path, tensors, TINY_CONFIG)
        (tmp_path / "model.safetensors").symlink_to("nowhere")
        with pytest.raises(CheckpointError, match=r"model\.safetensors: is a symbolic link to a file that is missing"):
            load_pretrained(tmp_path)


class TestNames:
    @pytest.mark.parametrize("prefix", ["module.", "model."])
    def test_wrapped(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, prefix: str) -> None:
        wrapped = {prefix + name: tensor for name, tensor in tensors.items()}
        assert same_parameters(loaded_as_written(tmp_path, wrapped), model)

    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_bare_encoder(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, prefix: str) -> None:
        bare = {prefix + n.removeprefix("bert."): t for n, t in tensors.items() if n.startswith("bert.")}
        loaded = loaded_as_written(tmp_path, bare)
        assert loaded.heads == Heads(mlm=False, nsp=False)
        assert loaded.state_dict().keys() == {n for n in model.state_dict() if n.startswith("bert.")}
        assert torch.equal(loaded.bert(random_ids()).last_hidden_state, model.bert(random_ids()).last_hidden_state)

    def test_gamma_and_beta(self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors) -> None:
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        assert old.keys() != tensors.keys()
        assert same_parameters(loaded_as_written(tmp_path, old), model)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
    @pytest.mark.parametrize("name", ["position_ids", "token_type_ids"])
    def test_old_buffers_are_not_used(
        self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, dtype: torch.dtype, name: str
    ) -> None:
        tensors[f"bert.embeddings.{name}"] = torch.full((1, 64), 5, dtype=dtype)
        assert same_parameters(loaded_as_written(tmp_path, tensors), model)

    def test_absolute_positions_beside_relative_ones_are_not_used(self, tmp_path: Path) -> None:
        model = tiny_model(tiny_config(position_embedding_type="relative_key"))
        tensors = {**tensors_of(model), "bert.embeddings.position_embeddings.weight": torch.ones(41, 20)}
        assert same_parameters(loaded_as_written(tmp_path, tensors, model.config), model)


class TestTies:
    @pytest.mark.parametrize(
        "absent", [(), (DECODER_WEIGHT,), (DECODER_BIAS,), (PREDICTION_BIAS,), (DECODER_WEIGHT, DECODER_BIAS)]
    )
    def test_copies_may_be_stored_or_not(
        self, tmp_path: Path, model: BertForPreTraining, tensors: Tensors, absent: tuple[str, ...]
    ) -> None:
        loaded = loaded_as_written(tmp_path, {name: t for name, t in tensors.items() if name not in absent})
        logits, expected = answer(loaded).prediction_logits, answer(model).prediction_logits
        assert logits is not None
        assert expected is not None
        assert torch.equal(logits, expected)

    @pytest.mark.parametrize(("copy", "first"), [(DECODER_WEIGHT, WORD_EMBEDDINGS), (DECODER_BIAS, PREDICTION_BIAS)])
    @pytest.mark.parametrize(
        "spoil", [lambda t: t + (torch.arange(t.numel()).view_as(t) == t.numel() - 1), torch.Tensor.half]
    )
    def test_copies_that_differ_are_refused(
        self, tmp_path: Path, tensors: Tensors, copy: str, first: str, spoil: Any
    ) -> None:
        tensors[copy] = spoil(tensors[copy])
        with pytest.raises(CheckpointError, match="tie_word_embeddings") as caught:
            loaded_as_written(tmp_path, tensors)
        (problem,) = caught.value.problems
        assert problem.startswith(f"{first} and {copy} differ")

    def test_an_untied_decoder_is_its_own(self, tmp_path: Path) -> None:
        model = tiny_model(UNTIED)
        loaded = loaded_as_written(tmp_path, tensors_of(model), UNTIED)
        assert same_parameters(loaded, model)
        assert loaded.mlm is not None
        assert not torch.equal(loaded.mlm.decoder.weight, loaded.bert.embeddings.token.weight)

    def test_an_untied_decoder_must_be_stored(self, tmp_path: Path, tensors: Tensors) -> None:
        del tensors[DECODER_WEIGHT]
        with pytest.raises(CheckpointError, match=f"missing tensors: {DECODER_WEIGHT}$"):
            loaded_as_written(tmp_path, tensors, UNTIED)

    def test_beside_an_untied_decoder_its_own_bias_counts(self, tmp_path: Path) -> None:
        model = tiny_model(UNTIED)
        both = {**tensors_of(model), PREDICTION_BIAS: torch.zeros(99)}
        assert same_parameters(loaded_as_written(tmp_path, both, UNTIED), model)

    def test_an_untied_decoder_takes_the_bias_that_there_is(self, tmp_path: Path) -> None:
        model = tiny_model(UNTIED)
        tensors = tensors_of(model)
        tensors[PREDICTION_BIAS] = tensors.pop(DECODER_BIAS)
        assert same_parameters(loaded_as_written(tmp_path, tensors, UNTIED), model)


class TestHeads:
    @pytest.mark.parametrize(
        ("prefixes", "heads"),
        [
            (("cls.predictions.",), Heads(mlm=False)),
            (("cls.seq_relationship.",), Heads(nsp=False)),
            (("cls.seq_relationship.", "bert.pooler."), Heads(nsp=False, pooler=False)),
            (("cls.",), Heads(mlm=False, nsp=False)),
        ],
    )
    def test_a_head_that_is_not_stored_does_not_exist(
        self, tmp_path: Path, tensors: Tensors, prefixes: tuple[str, ...], heads: Heads
    ) -> None:
        loaded = loaded_as_written(tmp_path, {n: t for n, t in tensors.items() if not n.startswith(prefixes)})
        assert loaded.heads == heads
        output = answer(loaded)
        assert (output.prediction_logits is not None, output.seq_relationship_logits is not None) == (
            heads.mlm,
            heads.nsp,
        )
        assert (loaded.bert.pooler is not None) == heads.pooler

    def test_an_mlm_head_without_any_bias_does_not_exist(
        self, tmp_path: Path, tensors: Tensors, caplog: pytest.LogCaptureFixture
    ) -> None:
        del tensors[PREDICTION_BIAS], tensors[DECODER_BIAS]
        assert loaded_as_written(tmp_path, tensors).heads == Heads(mlm=False)
        assert "cls.predictions.transform.dense.weight" in caplog.text

    @pytest.mark.parametrize(
        ("absent", "missing"),
        [
            (["cls.predictions.transform.dense.bias"], "cls.predictions.transform.dense.bias"),
            (["bert.pooler.dense.weight"], "bert.pooler.dense.weight"),
            (["cls.seq_relationship.bias"], "cls.seq_relationship.bias"),
            (
                ["bert.pooler.dense.weight", "bert.pooler.dense.bias"],
                "bert.pooler.dense.weight, bert.pooler.dense.bias",
            ),
        ],
    )
    def test_half_a_head_is_refused(self, tmp_path: Path, tensors: Tensors, absent: list[str], missing: str) -> None:
        for name in absent:
            del tensors[name]
        with pytest.raises(CheckpointError) as caught:
            loaded_as_written(tmp_path, tensors)
        assert caught.value.problems == (f"missing tensors: {missing}",)


class TestDtype:
    @pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
    @pytest.mark.parametrize("wanted", [None, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("said", [{}, {"torch_dtype": "float16"}, {"dtype": "bfloat16"}])
    def test_the_argument_alone_decides(
        self,
        tmp_path: Path,
        model: BertForPreTraining,
        stored: torch.dtype,
        wanted: torch.dtype | None,
        said: dict[str, str],
    ) -> None:
        tensors = {name: tensor.to(stored) for name, tensor in tensors_of(model).items()}
        loaded = load_pretrained(write_safetensors(tmp_path, tensors, TINY_CONFIG, **said), dtype=wanted)
        assert {parameter.dtype for parameter in loaded.parameters()} == {wanted or torch.float32}
        for name, tensor in tensors_of(loaded).items():
            assert torch.equal(tensor, tensors[name].to(wanted or torch.float32)), name

    def test_half_precision_weights_answer_as_in_transformers(self, tmp_path: Path) -> None:
        write_safetensors(tmp_path, tensors_of(tiny_model(dtype=torch.float16)), TINY_CONFIG, torch_dtype="float16")
        reference = transformers.BertForPreTraining.from_pretrained(tmp_path, dtype=torch.float32).eval()
        assert_equal_outputs(reference, load_pretrained(tmp_path))

    def test_computed_tables_get_the_dtype_too(self, tmp_path: Path) -> None:
        model = tiny_model(tiny_config(position_embedding_type="sinusoidal"), dtype=torch.bfloat16)
        write_safetensors(tmp_path, tensors_of(model), model.config)
        buffers = dict(load_pretrained(tmp_path, dtype=torch.bfloat16).named_buffers())
        assert buffers.keys() == dict(model.named_buffers()).keys() != set()
        assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())

    @pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
    def test_a_dtype_that_weights_cannot_have_is_refused(self, tmp_path: Path, dtype: torch.dtype) -> None:
        with pytest.raises(ValueError, match=r"^dtype: "):
            load_pretrained(tmp_path, dtype=dtype)

    @pytest.mark.parametrize("device", ["zzz", "cpu:x", "xpu:99", 1.5])
    def test_a_device_that_is_not_there_is_refused(self, tmp_path: Path, device: Any) -> None:
        with pytest.raises(ValueError, match=f"^device: {device!r} cannot be used here: "):
            load_pretrained(tmp_path, device=device)


def assert_equal_outputs(reference: Any, model: BertForPreTraining) -> None:
    ids, segments = random_ids(), random_segments()
    with torch.inference_mode():
        theirs = reference(ids, attention_mask=torch.ones_like(ids), token_type_ids=segments)
    ours = answer(model)
    assert (theirs.prediction_logits - ours.prediction_logits).abs().max() < 1e-4
    assert (theirs.seq_relationship_logits - ours.seq_relationship_logits).abs().max() < 1e-4


VARIANTS = [
    tiny_config(position_embedding_type="sinusoidal"),
    tiny_config(position_embedding_type="relative_key"),
    tiny_config(position_embedding_type="relative_key_query"),
    tiny_config(norm_placement="pre"),
    tiny_config(pooler_type="all_token_average"),
    tiny_config(pair_segment_ids=(3, 5)),
    tiny_config(pruned_heads={0: (1,), 2: (0, 2, 3)}),
]


class TestSaving:
    @pytest.mark.parametrize("config", [TINY_CONFIG, UNTIED, tiny_config(chunk_size_feed_forward=5), *VARIANTS])
    @pytest.mark.parametrize("heads", [Heads(), Heads(nsp=False, pooler=False), Heads(mlm=False)])
    def test_what_is_written_is_read_back_equal(self, tmp_path: Path, config: BertConfig, heads: Heads) -> None:
        model = tiny_model(config, heads=heads)
        save_pretrained(model, tmp_path / "new" / "folder")
        loaded = load_pretrained(tmp_path / "new" / "folder")
        assert same_parameters(loaded, model)
        assert loaded.heads == heads
        assert {**loaded.config.to_dict(), "architectures": 0, "dtype": 0} == {
            **config.to_dict(),
            "architectures": 0,
            "dtype": 0,
        }
        ours, theirs = answer(loaded), answer(model)
        for logits in ("prediction_logits", "seq_relationship_logits"):
            if getattr(theirs, logits) is not None:
                assert torch.equal(getattr(ours, logits), getattr(theirs, logits))

    @pytest.mark.parametrize("config", [TINY_CONFIG, UNTIED])
    def test_transformers_opens_it_with_equal_outputs(self, tmp_path: Path, config: BertConfig) -> None:
        model = tiny_model(config)
        save_pretrained(model, tmp_path)
        reference, report = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values())
        assert_equal_outputs(reference.eval(), model)

    @pytest.mark.parametrize(
        ("heads", "architecture"),
        [
            (Heads(), "BertForPreTraining"),
            (Heads(nsp=False, pooler=False), "BertForMaskedLM"),
            (Heads(mlm=False), "BertForNextSentencePrediction"),
            (Heads(mlm=False, nsp=False), "BertModel"),
        ],
    )
    def test_transformers_opens_models_with_fewer_heads(self, tmp_path: Path, heads: Heads, architecture: str) -> None:
        model = tiny_model(heads=heads)
        save_pretrained(model, tmp_path)
        assert transformers.AutoConfig.from_pretrained(tmp_path).architectures == [architecture]
        reference, report = getattr(transformers, architecture).from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values())
        encoder = getattr(reference, "bert", reference).eval()
        with torch.inference_mode():
            theirs, ours = encoder(random_ids()).last_hidden_state, model.bert(random_ids()).last_hidden_state
        assert (theirs - ours).abs().max() < 1e-5

    @pytest.mark.parametrize("config", VARIANTS)
    def test_transformers_refuses_what_it_cannot_represent(self, tmp_path: Path, config: BertConfig) -> None:
        save_pretrained(tiny_model(config), tmp_path)
        with pytest.raises(ValueError, match="bert_core"):
            transformers.AutoModel.from_pretrained(tmp_path)

    def test_the_dtype_in_the_config_is_that_of_the_file(self, tmp_path: Path) -> None:
        config = tiny_config(extra={"torch_dtype": "float32", "name_of_nobody": [7]})
        save_pretrained(tiny_model(config, dtype=torch.float16), tmp_path)
        values = json.loads((tmp_path / "config.json").read_text())
        assert (values["dtype"], values.get("torch_dtype"), values["name_of_nobody"]) == ("float16", None, [7])
        assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.float16}

    def test_what_cannot_be_saved(self, tmp_path: Path) -> None:
        model = tiny_model()
        bare: Any = model.bert
        with pytest.raises(ValueError, match="^model: a BertModel is not a BertForPreTraining"):
            save_pretrained(bare, tmp_path)
        model.prepack()
        with pytest.raises(ValueError, match=r"^model: it is prepacked, .* save it before `prepack`$"):
            save_pretrained(model, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_both_files_can_be_read_by_others(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            save_pretrained(tiny_model(), tmp_path)
        finally:
            os.umask(before)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert modes == {"config.json": 0o640, "model.safetensors": 0o640}

    def test_a_failure_leaves_the_old_checkpoint(
        self, tmp_path: Path, model: BertForPreTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Tensors, file: Path, **metadata: Any) -> None:
            assert metadata
            file.write_bytes(b"half of it")
            raise OSError("no space left on device")

        save_pretrained(model, tmp_path)
        monkeypatch.setattr(bert_core.checkpoint, "save_file", fail)
        with pytest.raises(OSError, match="no space left"):
            save_pretrained(tiny_model(seed=1), tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
        assert same_parameters(load_pretrained(tmp_path), model)

    def test_saving_over_a_checkpoint_keeps_the_other_files(self, tmp_path: Path, model: BertForPreTraining) -> None:
        (tmp_path / "vocab.txt").write_text("[PAD]\n")
        save_pretrained(tiny_model(seed=1), tmp_path)
        save_pretrained(model, tmp_path)
        assert (tmp_path / "vocab.txt").read_text() == "[PAD]\n"
        assert same_parameters(load_pretrained(tmp_path), model)

    def test_a_callable_activation_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="hidden_act"):
            save_pretrained(tiny_model(tiny_config(hidden_act=torch.sin)), tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestErrors:
    def test_they_are_raised_before_a_weight_is_used(
        self, tmp_path: Path, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bert_core.checkpoint, "read_tensors", lambda _: pytest.fail("weights were read"))
        with pytest.raises(CheckpointError):
            loaded_as_written(tmp_path, {**tensors, "bert.betamax.gamma_ray": torch.ones(1)})


def test_a_full_disk_is_an_os_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_tensors: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(bert_core.checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left") as raised:
        save_pretrained(tiny_model(), tmp_path)
    assert raised.value.filename == str(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())
