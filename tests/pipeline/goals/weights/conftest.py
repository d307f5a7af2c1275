"""A question about the weights of three small corpora, which tests train."""

import pytest

from tests.conftest import write_text

SMALL = (
    *("experiment=own", "goal=weights", "model=qwen2-0.05m", "ladder=[]", "corpora.tokenizer.vocabulary=300"),
    *("corpora.validation_ratio=0.1", "precision=fp32", "engine=eager", "sequence_length=16", "validation_windows=8"),
    *("pretrain.global_batch=6", "pretrain.evaluation.every=6", "launcher.workers=1", "launcher.resume_every=7"),
)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides of the question, after the texts of general, domain and third are written."""
    folder = tmp_path_factory.mktemp("weights")
    for seed, name in enumerate(("general", "domain", "third")):
        write_text(folder / name, seed)
    paths = [f"corpora.sources.{name}.path={folder / name}" for name in ("general", "domain")]
    third = f"corpora.sources={{third: {{kind: files, path: {folder / 'third'}}}}}"
    return [*SMALL, *paths, third, f"studies={folder / 'studies'}", f"data={folder / 'data'}"]
