"""Sections of a question about its text: corpora, tokenizer, validation documents."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from training.corpora.source import Source


@dataclass
class TokenizerConfig:
    vocabulary: int = 2048
    """Token ids of the byte-level BPE that is trained on the corpora, 257 or more."""
    path: str | None = None
    """Use this tokenizer instead: a Hugging Face directory, or a hub name like Qwen/Qwen2.5-0.5B."""
    revision: str | None = None
    """Of a hub name: branch, tag or commit; manifest.json keeps the commit. null: the main branch."""


@dataclass
class CorporaConfig:
    general: str = MISSING
    """Name of the source that is the general corpus, which is replayed."""
    domain: str = MISSING
    """Name of the source that is the domain corpus."""
    domains: list[str] = field(default_factory=list)
    """Several domains in one study, each mixed with general in runs of its own. fit, recommend, confirm and report are
    about one of them, `domain`: cptlaw recommend studies/six corpora.domain=law. Empty: `domain` alone."""
    sources: dict[str, Source] = field(default_factory=dict)
    """Corpus name -> where its text comes from."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """How text becomes tokens."""
    folder: str = ""
    """Folder that the paths of the sources are relative to; empty: the working directory."""
    validation_ratio: float = 0.05
    """Ratio of the documents that are kept for validation, above 0, below 1."""
    validation: str | None = None
    """Folder of validation sets, <corpus>.jsonl each; prepare validation writes them, prepare reads them. null: none"""


@dataclass
class ValidationConfig:
    models: list[str] = field(default_factory=list)
    """Of prepare validation: models that measure perplexity: Hugging Face directories, hub names, or study folders."""
    sample: int = 5000
    """Of prepare validation: documents drawn from each corpus."""
    keep: int = 1000
    """Of prepare validation: documents kept of them."""
    worst: float = 0.1
    """Of prepare validation: documents in this upper quantile of the perplexity under every model count as noise."""
    tokens: int = 1024
    """Of prepare validation: tokens read of each document."""
