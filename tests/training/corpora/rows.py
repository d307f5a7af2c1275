"""Files of every kind of corpus, their documents, and the positions after each."""

import gzip
import json

import pyarrow
from pyarrow import parquet

from training.corpora.files import FileReader
from training.corpora.source import Source


def as_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(path, content, row_group_size=16):
    """Write JSON lines, compressed or as parquet if the ending says so, or any other bytes as they are."""
    if path.suffix == ".parquet":
        rows = [json.loads(line) for line in content.split(b"\n") if line]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=row_group_size)
    elif path.suffix == ".zst":
        path.write_bytes(pyarrow.compress(content, codec="zstd", asbytes=True))
    else:
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def file_reader(path, **keys):
    """The reader of a file or folder."""
    return FileReader("a", Source(path=str(path), **keys))


def read(path, **keys):
    """All documents of a file or folder."""
    return list(file_reader(path, **keys).documents())


def with_positions(documents):
    """All documents, and the position after each, as it is read back from a file."""
    pairs = [(document, json.loads(json.dumps(documents.position()))) for document in documents]
    return [document for document, _ in pairs], [position for _, position in pairs]
