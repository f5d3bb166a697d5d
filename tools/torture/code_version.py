"""Name the code that a campaign ran with, so that results of other code are not reused."""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What a campaign depends on: the package, the campaign, and the helpers that tests share.
CODE = ("src", "tools", ":(glob)tests/*.py")


def code_version() -> str:
    """Return the last commit that changed the code, and a hash of changes not committed."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", ROOT, *words], capture_output=True, check=True
        )
        return done.stdout.decode(errors="replace").strip()

    changes = git("diff", "HEAD", "--", *CODE)
    changes += git("ls-files", "--others", "--exclude-standard", "--", *CODE)
    commit = git("log", "-1", "--format=%H", "--", *CODE)
    suffix = hashlib.sha256(changes.encode()).hexdigest()[:8]
    return f"{commit}+{suffix}" if changes else commit
