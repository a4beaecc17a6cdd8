"""The schedules of a manifest held against the verbs that the site declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.documents import Unreadable, read_document
from engine.errors import UsageError
from engine.faults import Fault, did_you_mean
from engine.fields import read_fields
from engine.plugins.site import Site
from engine.schedules import VerbTarget
from engine.verbs import VerbSpec


def schedule_faults(site: Site, verbs: Sequence[VerbSpec]) -> Iterator[Fault]:
    """Verbs that are not there, and values that they cannot take."""
    if not site.schedules:
        return
    try:
        document = read_document(site.manifest)
    except Unreadable as unreadable:  # it was readable when the site was loaded
        yield unreadable.fault
        return
    known = {verb.name: verb for verb in verbs}
    for number, one in enumerate(site.schedules):
        assert isinstance(one.target, VerbTarget)
        place, verb = ("schedules", number), known.get(one.target.verb)
        if verb is None:
            hint = did_you_mean(one.target.verb, known) or f"its verbs: {', '.join(sorted(known)) or 'none'}"
            message = f'site.schedules[{number}].verb: the site has no verb "{one.target.verb}"'
            yield document.fault((*place, "verb"), message, hint)
            continue
        try:
            read_fields(verb, one.target.values)
        except UsageError as error:
            yield document.fault((*place, "values"), f"site.schedules[{number}].values: {error}")
