"""Load and validate a recipe: a YAML file, by name or path, with overrides by dotted keys. Write its JSON schema."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.recipe import parts
from pairmill.catalog.recipe.overrides import EXTENDS, explain_fault, extend, override, replace_alternatives
from pairmill.catalog.recipe.parts import NONE, Advanced, ModelSpec, Name, Rule, Settings
from pairmill.catalog.recipe.parts_of_texts import OWN, Captioner, Captions, Fuse, Tags
from pairmill.catalog.recipe.thresholds import refuse_empty
from pairmill.catalog.terms.error import BadRecipe, did_you_mean
from pairmill.catalog.terms.secrets import without_secrets


class Recipe(Settings):
    """All settings of a dataset."""

    name: Name = Field(description="The dataset's name.")
    scores: Advanced[dict[Name, dict[str, Any]]] = Field(
        {}, description="Scores to compute although no rule reads them, with settings of theirs."
    )
    imported: Advanced[list[parts.ImportedName]] = Field(
        [], description="Scores of pictures that `pairmill import-scores` put into the lake, for rules to read."
    )
    heads: Advanced[dict[parts.ImportedName, str] | None] = Field(
        None,
        min_length=1,
        description="Files of linear layers or MLPs over CLIP's vectors, by the names under which rules read them.",
    )
    seed: Advanced[int] = Field(0, ge=0, lt=2**63, description="Random seed of samples, orders and cluster training.")
    sources: list[str] = Field([], description="Places to ingest when a run names none, as after --source.")
    models: dict[str, ModelSpec] = Field(
        description="`clip`, without which nothing is embedded, and whatever captioners and fusion name."
    )
    images: list[Rule] = Field([], description="Rules for pictures, in order.")
    sentences: list[Rule] = Field([], description="Rules for sentences, in order.")
    candidates: Advanced[list[Rule]] = Field(
        [],
        description="Rules for a picture with one of its retrieved sentences; a sentence that fails one is not given.",
    )
    words: Advanced[parts.Words] = parts.Words()  # pyright: ignore[reportCallIssue]
    duplicates: parts.Duplicates = parts.Duplicates()  # pyright: ignore[reportCallIssue]
    sentence_duplicates: parts.SentenceDuplicates | None = Field(
        None, description="Drop near copies of sentences, if wanted."
    )
    contamination: Advanced[parts.Contamination | None] = Field(
        None, description="Keep a benchmark's pictures out, if wanted."
    )
    association: parts.Association = parts.Association()  # pyright: ignore[reportCallIssue]
    balance: parts.Balance = parts.Balance()  # pyright: ignore[reportCallIssue]
    splits: Advanced[parts.Splits | None] = Field(
        None, description="Shares of pairs by split, as {train: .98, val: .01, test: .01}; groups are never divided."
    )
    split_by: Advanced[list[parts.Link] | None] = Field(
        None,
        min_length=1,
        description="What keeps pairs in one split: near copies, one document, one host of pictures. All, if left out.",
    )
    sizes: Advanced[parts.Sizes | None] = Field(
        None,
        description="Nested subsets by share up to 1 or by number of pairs: {nano: 1000, lite: .1, full: 1}. Of "
        "[nano, lite, full] each has ten times the pairs of the one before. Held-out splits are whole in each.",
    )
    captioners: list[Captioner] = Field([], description="Models that describe the pictures that the rules keep.")
    captions: Advanced[Captions] = Captions()  # pyright: ignore[reportCallIssue]
    tags: Tags | None = Field(None, description="Zero-shot labels, if wanted.")
    fuse: Fuse | None = Field(None, description="A synthetic text, if wanted; it needs a captioner.")
    ingest: parts.Ingest = parts.Ingest()  # pyright: ignore[reportCallIssue]
    fetch: parts.Fetch | None = Field(
        None, description="Fetch pictures that are only named by an address; off without."
    )
    opt_outs: Advanced[int | None] = Field(
        None,
        ge=1,
        le=365,
        description="Days after which a host's robots.txt, tdmrep.json and ai.txt are read again; else not heeded.",
    )
    decoding: parts.Decoding = parts.Decoding()  # pyright: ignore[reportCallIssue]
    clip: parts.ClipSettings = parts.ClipSettings()  # pyright: ignore[reportCallIssue]

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        """Refuse repeated names, `fuse` without a captioner, and models that `models` lacks."""
        made = () if self.contamination is None else (self.contamination.rule,)
        for group in ((*self.images, *made), self.sentences, self.candidates, self.captioned_by):
            names = [part.name for part in group]
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"two have the name '{min(twice)}'; a name stands for one")
        users = {f"captioner '{c.name}'": c.model for c in self.captioners} | dict.fromkeys(
            self.embedding_sections, "clip"
        )
        if self.fuse is not None:
            if not self.captioned_by:
                raise ValueError("`fuse` needs a captioner; add one to `captioners` or take `fuse` out")
            users["`fuse`"] = self.fuse.model
        for user, model in users.items():
            if model not in self.models:
                known, near = ", ".join(self.models) or "empty", did_you_mean(model, self.models)
                guess = f"; {near} Else" if near else ";"
                raise ValueError(f"{user} needs the model '{model}'{guess} add it to `models` ({known})")
        return self

    @property
    def embedding_sections(self) -> tuple[str, ...]:
        """The recipe's settings that compare vectors of `models.clip`, as names in backquotes."""
        compared = {
            "association": self.association.is_on,
            "duplicates.cosine": self.duplicates.cosine is not None,
            "balance.cap": self.balance.cap is not None,
            "tags": self.tags is not None,
            "contamination": self.contamination is not None,
            "heads": bool(self.heads),
        }
        return tuple(f"`{name}`" for name, is_on in compared.items() if is_on)

    @property
    def split_links(self) -> tuple[str, ...]:
        """What keeps pairs in one split, among LINKS."""
        return parts.LINKS if self.split_by is None else tuple(self.split_by)

    @property
    def captioned_by(self) -> list[Captioner]:
        """The captioners, first OWN for the captions that came along with the pictures, if they are captions."""
        own = [] if self.captions.own is None else [Captioner.model_construct(name=OWN)]
        return [*own, *self.captioners]

    @property
    def only_captions(self) -> bool:
        """Whether the run computes captions only: the recipe has a captioner, and compares no vectors."""
        return bool(self.captioned_by) and not self.embedding_sections

    @model_validator(mode="after")
    def _can_be_applied(self) -> Self:
        """Refuse a calibrated rule on candidates, and `captions` that cannot choose among the captioners."""
        if calibrated := [rule.name for rule in self.candidates if rule.calibrate is not None]:
            raise ValueError(f"rule '{calibrated[0]}': a rule on candidates cannot be calibrated; write a number")
        if self.splits is None and self.split_by is not None:
            raise ValueError("`split_by` says what `splits` keep together, and there are none; add `splits`")
        if self.splits is not None and "copies" in self.split_links and not self.duplicates.is_on:
            raise ValueError(
                "`splits` keep near copies together, and `duplicates: none` finds none; let `duplicates` find them, or "
                "leave copies out: `split_by: [documents, hosts]`"
            )
        choose, own = self.captions.choose, self.captions.own
        if own == "keep" and self.captioners:
            raise ValueError("`captions.own: keep` asks no captioner; write `captioners: []`, or `own: fill`")
        if (own == "fill" and len(self.captioners) != 1) or (own == "compare" and not self.captioners):
            n = "one captioner" if own == "fill" else "a captioner"
            raise ValueError(f"`captions.own: {own}` needs {n}, and `captioners` has {len(self.captioners)}")
        if choose != "first" and len(self.captioners) < 2:
            raise ValueError(
                f"`captions.choose: {choose}` chooses among captioners, and `captioners` has {len(self.captioners)}; "
                "add another, or leave `captions` out"
            )
        return self

    def with_(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return a copy of the recipe with values set at dotted keys: ``with_({"balance.cap": 20})``.

        Raises BadRecipe for a key that does not exist and a value that is not valid.
        """
        return apply_overrides(self, {key: json.dumps(value) for key, value in changes.items()})

    def captions_chosen_by(self) -> tuple[str, ...]:
        """Return all settings that determine which captioner's text becomes an image's caption.

        () if the caption is always the first captioner's.
        """
        drawn = [str(self.seed), *(each.name for each in self.captioners)]
        ways = {"first": (), "best": ("best", self.captions.by), "mixture": ("mixture", *drawn), "fill": ("fill",)}
        return ways[self.captions.way]

    def record(self) -> dict[str, Any]:
        """Return the settings as tables store them, as plain JSON values; source addresses have no secrets."""
        return self.model_dump(mode="json") | {"sources": [without_secrets(uri) for uri in self.sources]}

    def digest(self) -> str:
        """Hash all settings that determine the dataset, and are not at their defaults, to 32 hex digits.

        Settings of placement are excluded: locations of sources and benchmarks, batch sizes, connection limits, payload
        copy or reference.
        """
        size = {"batch_size"}
        placement: dict[str, Any] = {"sources": True, "clip": size, "captioners": {"__all__": size}, "fuse": size,
                                     "fetch": {"connections", "per_host", "seconds", "retries"},
                                     "ingest": {"payload"}, "contamination": {"sets"}, "heads": True}  # fmt: skip
        content = self.model_dump(mode="json", exclude_defaults=True, exclude=placement)
        if self.scores:
            content["scores"] = {
                score: {name: value for name, value in given.items() if name not in size}
                for score, given in content["scores"].items()
            }
        content |= {"heads": sorted(self.heads)} if self.heads else {}
        # Only its placement differs from a section's defaults; a section that is None by default says more when empty.
        usual = {name for name, field in type(self).model_fields.items() if field.default is not None}
        content = {name: value for name, value in content.items() if value != {} or name not in usual}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


def load(name_or_path: str | Path, overrides: Mapping[str, str] | None = None, folder: Path | None = None) -> Recipe:
    """Load a recipe by path, or by name from ``folder``.

    ``name_or_path`` is a path if it ends in .yaml or .yml or holds a slash, else a name. The recipe may extend another.
    ``overrides`` are dotted keys with YAML values: {"association.top_k": "2", "images.short_side.keep": "width > 64"}.
    Raises BadRecipe if the file or an override is not valid.
    """
    content = settings_of(name_or_path, folder)
    return _overridden(content, overrides or {}, str(content.get("name", Path(name_or_path).name)))


def settings_of(name_or_path: str | Path, folder: Path | None = None) -> dict[str, Any]:
    """Read the settings of a recipe merged into those of the recipe that it extends, without validating them.

    The arguments are those of `load`. Raises BadRecipe for a file that is missing or no YAML.
    """
    return extend(_content(str(name_or_path), folder), lambda name: _content(name, folder))


def _content(name_or_path: str, folder: Path | None) -> dict[str, Any]:
    """Read a recipe's own file. Raises BadRecipe."""
    file = find_file(name_or_path, folder)
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise BadRecipe(f"recipe '{file}' cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise BadRecipe(f"recipe '{file}' holds no settings by name; it begins with `name: ...`.")
    return content


def apply_overrides(recipe: Recipe, overrides: Mapping[str, str]) -> Recipe:
    """Return a copy of the recipe with ``overrides`` applied, in the form of `load`. Raise BadRecipe if invalid."""
    return _overridden(recipe.model_dump(mode="json"), overrides, recipe.name)


def _overridden(content: dict[str, Any], overrides: Mapping[str, str], name: str) -> Recipe:
    """Apply overrides, validate the recipe, and refuse rules that no value passes."""
    for key, value in overrides.items():
        override(content, key, value)
    replace_alternatives(content, overrides)
    recipe = validate(content, name)
    for rule in (*recipe.images, *recipe.sentences, *recipe.candidates):
        refuse_empty(rule.name, rule.predicate)
    return recipe


def validate(content: Mapping[str, Any], name: str) -> Recipe:
    """Validate settings into a Recipe, called ``name`` in messages. Raise BadRecipe with one sentence per fault."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        faults = [explain_fault(fault, content, Recipe) for fault in error.errors()]
        raise BadRecipe("\n".join(f"recipe '{name}', {fault}" for fault in faults)) from error


def find_file(name: str, folder: Path | None) -> Path:
    """Return the recipe file for a path or a name. Raise BadRecipe if there is none."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        try:
            file = Path(name).expanduser()
            if file.is_file():
                return file
        except (OSError, RuntimeError, ValueError) as error:  # path too long, or ~USER of an unknown user
            raise BadRecipe(f"recipe {ascii(name)[:200]}: there is no such file ({error}).") from error
        raise BadRecipe(f"recipe '{name}': {_as_source(name) or 'there is no such file; check the path.'}")
    known = sorted(file.stem for file in folder.glob("*.yaml")) if folder else []
    if folder and name in known:
        return folder / f"{name}.yaml"
    if as_source := _as_source(name):
        raise BadRecipe(f"there is no recipe '{name}'; {as_source}")
    remedy = did_you_mean(name, known) or f"there are {', '.join(known) or 'none'}; or give a file's path."
    raise BadRecipe(f"there is no recipe '{name}'; {remedy}")


def _as_source(name: str) -> str:
    """Return the remedy for a folder or file that stands where a recipe is due; '' if there is none of that name."""
    place = Path(name).expanduser()
    if not (name and place.exists()):
        return ""
    kind = "folder" if place.is_dir() else "file"
    return f"this is a {kind}, which a run reads by --source; name a recipe before it, such as: folder --source {name}"


def refuse_other_scorers(recipe: Recipe, current: Mapping[str, str]) -> None:
    """Raise BadRecipe if a rule's threshold was calibrated on the scores of another scorer than the ``current`` one.

    A cosine of 0.24 means something else by another CLIP. A rule calibrated by `pairmill calibrate` names the scorers
    with models that its score comes from; a rule without `scorers` is bound to none. ``current`` maps names to digests;
    names of no current scorer pass.
    """
    for rule in (*recipe.images, *recipe.sentences, *recipe.candidates):
        for name, digest in (rule.scorers or {}).items():
            if name in current and not current[name].startswith(digest):
                raise BadRecipe(
                    f"recipe '{recipe.name}', rule '{rule.name}': its threshold was calibrated on scores by {name} "
                    f"{digest[:8]}, and this run has {current[name][:8]}, another model or setting. Run with a loose "
                    f"threshold and without the rule's `scorers`, then calibrate it anew: pairmill calibrate "
                    f"{recipe.name} {rule.name}"
                )


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def recipe_schema() -> dict[str, Any]:
    """Return the JSON schema of recipe files, which need only a name if they extend another.

    `association`, `duplicates` and `balance.cap` also take 'none'; a rule whose `keep` is null is taken out.
    """
    schema = Recipe.model_json_schema()
    alone = schema["required"]
    about = "Name or path of a recipe whose settings are taken over where this file has none."
    schema["properties"] = {EXTENDS: {"type": "string", "description": about}, **schema["properties"]}
    cap = schema["$defs"]["Balance"]["properties"]["cap"]
    cap["anyOf"] = [each for each in cap["anyOf"] if each.get("type") != "null"] + [{"const": NONE}]
    for name in ("association", "duplicates"):
        section = schema["properties"][name]
        section["anyOf"] = [{"$ref": section.pop("$ref")}, {"const": NONE}]
    schema["$defs"]["Rule"]["properties"]["keep"]["type"] = ["string", "boolean", "null"]
    del schema["required"]
    extends = {"required": [EXTENDS]}
    return {"$schema": DIALECT, **schema, "if": extends, "then": {"required": ["name"]}, "else": {"required": alone}}
