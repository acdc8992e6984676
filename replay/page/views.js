// The views by name, in the order of their tabs.

import { checksView } from "./view_checks.js";
import { compareView } from "./view_compare.js";
import { episodeView } from "./view_episode.js";
import { groupView } from "./view_group.js";
import { replayView } from "./view_replay.js";
import { runView } from "./view_run.js";

export const VIEWS = { run: runView, group: groupView, episode: episodeView, replay: replayView, compare: compareView, checks: checksView };
