"""recommendation.json and confirmation.json as they are read back: of the types that all who show them count on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.study.folder import Study, StudyError

Check = Callable[[Any], bool]


def read_recommendation(study: Study) -> dict[str, Any]:
    """Content of recommendation.json.

    Raises:
        StudyError: missing, damaged, of another schema, or holding what no answer can hold; with the key.
    """
    return _checked(study, "recommendation.json", "recommend", _RECOMMENDATION)


def read_confirmations(study: Study) -> list[dict[str, Any]]:
    """Rows of confirmation.json.

    Raises:
        StudyError: as `read_recommendation`.
    """
    return _checked(study, "confirmation.json", "confirm", _CONFIRMATION)["confirmations"]


def read_proof(study: Study) -> dict[str, Any]:
    """What confirmation.json says of the optimum, as `pipeline.answers.verdict` has it.

    Raises:
        StudyError: as `read_recommendation`.
    """
    return _checked(study, "confirmation.json", "confirm", _PROOF)["proof"]


def read_weights(study: Study) -> dict[str, Any]:
    """Content of recommendation.json of goal=weights.

    Raises:
        StudyError: as `read_recommendation`.
    """
    return _checked(study, "recommendation.json", "recommend", _WEIGHTS)


def read_comparison(study: Study) -> dict[str, Any]:
    """Content of confirmation.json of goal=weights.

    Raises:
        StudyError: as `read_recommendation`.
    """
    return _checked(study, "confirmation.json", "confirm", _COMPARISON)


def _checked(study: Study, name: str, made_by: str, shape: dict[str, Any]) -> dict[str, Any]:
    name = study.answer(name)
    content = study.read_json(name, made_by)
    if wrong := _wrong(content, shape, ""):
        raise StudyError(f"{study.folder / name}: {wrong} cannot stand there; run cptlaw {made_by} again")
    return content


def _wrong(value: Any, shape: Any, key: str) -> str:
    """The first key whose value does not fit, with the value; empty where all do."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return _said(key, value)
        # One name stands for every key, as the names of corpora.
        inner = {name: shape["*"] for name in value} if "*" in shape else shape
        parts = ((value.get(name), of, f"{key}.{name}".lstrip(".")) for name, of in inner.items())
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return _said(key, value)
        parts = ((item, shape[0], f"{key}[{number}]") for number, item in enumerate(value))
    else:
        return "" if shape(value) else _said(key, value)
    return next((problem for part in parts if (problem := _wrong(*part))), "")


def _said(key: str, value: Any) -> str:
    return f"{key} = {value!r:.60}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whether(value: Any) -> bool:
    return isinstance(value, bool)


def _or_none(shape: Any) -> Check:
    return lambda value: value is None or not _wrong(value, shape, "")


def _either(*shapes: Any) -> Check:
    return lambda value: any(not _wrong(value, shape, "") for shape in shapes)


_RECOMMENDATION: dict[str, Any] = {
    "goal": {"kind": _text, "tolerance": _number},
    # A version before had one law for all corpora; who reads says that it is of another question.
    "law": _either(_text, {"*": _text}),
    "target": {"model": _text, "N": _number, "D": _number, "steps": _number},
    "loss_before": {"*": _number},
    "mixture": _or_none({"*": _share}),
    "low": _or_none(_share),
    "high": _or_none(_share),
    "predicted": {"*": {"loss": _number, "low": _number, "high": _number}},
    "binding": _text,
    # Of goal=compute; recommendations of a version before have neither.
    "optimum": _or_none({"*": {"value": _number, "low": _number, "high": _number}}),
    "candidates": _or_none(
        [{"model": _text, **dict.fromkeys(("N", "D", "steps", "share", "predicted", "low", "high"), _number)}]
    ),
    "warnings": [_text],
    "held_out_error": {"*": _either(_number, {"*": _number})},
    "answers": {
        "*": {"domain_ratio": _or_none(_share), "low": _or_none(_share), "high": _or_none(_share), "binding": _text}
    },
}
_CONFIRMATION: dict[str, Any] = {
    "confirmations": [
        {
            **dict.fromkeys(("run", "corpus", "law"), _text),
            **dict.fromkeys(("recommended", "inside"), _whether),
            **dict.fromkeys(("predicted", "low", "high", "measured", "relative_error"), _number),
            "domain_ratio": _share,
        }
    ]
}
_INTERVAL = {"value": _number, "low": _or_none(_number), "high": _or_none(_number)}
_PROOF: dict[str, Any] = {
    "proof": {
        **dict.fromkeys(("goal", "corpus", "verdict", "sentence"), _text),
        **dict.fromkeys(("at", "seeds"), _number),
        "places": [
            {
                "model": _text,
                **dict.fromkeys(("N", "steps", "domain_ratio", "measured", "predicted", "low", "high"), _number),
                "sd": _or_none(_number),
            }
        ],
        **dict.fromkeys(("rise", "crossing", "difference"), _or_none(_INTERVAL)),
        "among_best": _or_none([_whether]),
        "tolerance": _or_none(_number),
    }
}
_STAR: dict[str, Any] = {
    **dict.fromkeys(("tokens", "base_value"), _number),
    "base": {"*": _share},
    "weights": {"*": _share},
    "factors": [_number],
    "points": {"*": [[_number]]},
    "coefficients": {"*": dict.fromkeys(("a", "b", "c"), _number)},
}
_PLACE: dict[str, Any] = {"tokens": _number, "weights": {"*": _share}, "free": {"*": _share}}
_WEIGHTS: dict[str, Any] = {
    "goal": {"kind": lambda value: value == "weights", "phase": _text, "average": _text},
    "target": {"model": _text, "steps": _number, "tokens": _number},
    "method": _text,
    "mixture": {"*": _share},
    "low": {"*": _share},
    "high": {"*": _share},
    "predicted": {"*": _number},
    "warnings": [_text],
    "proposals": [
        {
            "method": _text,
            "weights": {"*": _share},
            "low": {"*": _share},
            "high": {"*": _share},
            "runs": [_text],
            "tokens": _number,
            "lines": [_text],
            "details": {"stars": _or_none([_STAR]), "path": _or_none([_PLACE])},
        }
    ],
}
_COMPARISON: dict[str, Any] = {
    "reference": _text,
    "average": _text,
    "worth": {"*": _share},
    "target": {"steps": _number, "tokens": _number},
    "seeds": _number,
    "methods": [
        {
            "method": _text,
            "recommended": _whether,
            "weights": {"*": _share},
            "runs": [_text],
            "values": [_number],
            "losses": {"*": _number},
            "worst": _text,
            "reached": _number,
            **dict.fromkeys(
                ("loss", "value", "perplexity", "worst_perplexity", "above_best", "search_tokens"), _number
            ),
            **dict.fromkeys(("difference", "low", "high", "general_change"), _or_none(_number)),
            **dict.fromkeys(("speed_up", "speed_up_low", "speed_up_high", "tokens_saved"), _or_none(_number)),
        }
    ],
}
