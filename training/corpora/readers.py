"""The reader of each kind of source."""

from training.corpora.files import FileReader
from training.corpora.generated import GeneratedReader
from training.corpora.hub import HubReader
from training.corpora.installed_python import InstalledReader
from training.corpora.reader import Bar, Log, Reader
from training.corpora.source import Source

READERS: dict[str, type[Reader]] = {
    "files": FileReader,
    "hub": HubReader,
    "installed-python": InstalledReader,
    "generated": GeneratedReader,
}


def open_reader(name: str, source: Source, log: Log = print, bar: Bar | None = None) -> Reader:
    """The reader of a corpus; `log` and `bar` are called as those of `Reader`."""
    return READERS[source.kind](name, source, log, bar)
