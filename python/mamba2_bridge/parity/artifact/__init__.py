"""What a model made of a case as a folder: recorded on one machine, compared on another without its code.

`manifest` says what such a folder holds, `tensors` how one array lies in a file, `recording` writes it,
`reading` reads it, `comparing` holds one against another or a live model against one. Needs the extra
``mamba2-bridge[parity]``.

>>> from mamba2_bridge.parity.artifact import compare_artifacts, read, record
>>> record(runner, case, "recorded/mine")  # doctest: +SKIP
>>> compare_artifacts(read("recorded/theirs"), read("recorded/mine")).passed  # doctest: +SKIP
"""

from mamba2_bridge.parity.artifact.comparing import compare_artifacts, compare_with_artifact
from mamba2_bridge.parity.artifact.reading import Artifact, read
from mamba2_bridge.parity.artifact.recording import record

__all__ = ["Artifact", "compare_artifacts", "compare_with_artifact", "read", "record"]
