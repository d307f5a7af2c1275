"""What a base model is, as its files say and as measured."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """What a model is, as its files say and as measured."""

    source: str
    """Where its weights come from."""
    sha256: str = ""
    """Checksum of the GGUF file; empty: not from one."""
    licence: str = ""
    """As its files state it; empty: they do not."""
    quantisation: str = ""
    """Type of the weights before they were dequantised, like Q4_1; empty: they were not quantised."""
    instruction_tuned: str
    """Why it counts as instruction-tuned; empty: nothing says so."""
    model_type: str
    """Architecture."""
    parameters: int
    """All of them."""
    non_embedding: int
    """N of the laws."""
    perplexity: dict[str, float]
    """Token before a text -> perplexity of plain English."""
    separator: str
    """The token that should precede documents."""
    end_of_text: str
    """The token that precedes them where nothing else is said."""

    def lines(self) -> list[str]:
        """The model in a few lines."""
        tokens = ", ".join(f"{token} {value:.1f}" for token, value in self.perplexity.items())
        quantised = f", dequantised from {self.quantisation}: not the weights that were trained"
        instructed = f"instruction-tuned ({self.instruction_tuned}): not a base model, its losses change more at first"
        return [
            f"{self.model_type}, {self.parameters:,} parameters, {self.non_embedding:,} of them non-embedding",
            f"from {self.source}{quantised if self.quantisation else ''}",
            f"licence: {self.licence or 'not stated in its files'}",
            *([instructed] if self.instruction_tuned else []),
            f"perplexity of plain English by the token before it: {tokens}",
            f"documents are preceded by {self.separator}"
            + (f", not by the declared {self.end_of_text}" if self.separator != self.end_of_text else ""),
        ]
