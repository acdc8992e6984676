import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # lets the tests of this folder import sample_episodes
