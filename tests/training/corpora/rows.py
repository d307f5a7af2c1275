"""Files of every kind of corpus, and the places of a reading."""

import gzip
import json

import pyarrow
from pyarrow import parquet


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


def with_places(reading):
    """All documents of a reading, and the place after each, as it is read back from a file."""
    pairs = [(document, json.loads(json.dumps(reading.place()))) for document in reading]
    return [document for document, _ in pairs], [place for _, place in pairs]
