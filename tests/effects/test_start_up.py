"""What loading the room costs."""

from __future__ import annotations

import subprocess
import sys


def test_modules_of_the_room_do_not_load_the_object_library():
    code = (
        "import sys, omnigraph.effects.objects, omnigraph.effects.local_objects,"
        " omnigraph.effects.failpoints, omnigraph.effects.clock, omnigraph.effects.clock;"
        "print('obstore' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
