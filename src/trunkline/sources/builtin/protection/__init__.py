"""Protected paths: what a command plants there is undone when it has ended (docs/adr/0032).

Some files of a project say what programs outside the sandbox run: git hooks, tasks of editors, servers of agents, this
gateway's configuration. A command may write to the project, so it could plant such a file. The story of one command:

1. `protected_paths` lists them. `scanner` finds everything that is at them, in a tree that may be large, and in
   the git repositories below it.
2. Before the command, `guard` has `tracker` take a snapshot: what each path holds, by stamp and digest, with a copy of
   the contents. It is registered with those of other running commands and merged with them (`snapshots`): what another
   command has planted meanwhile must not pass for what was there before.
3. `tracker` names the paths near the root that the sandbox mounts read-only for the command. That spares most of the
   rest, and tells what was changed from outside: the user's own work, which stays.
4. After the command, once none of its processes runs, the paths are scanned again and compared with the snapshot
   (`undo`). In a git configuration only keys that can make git run a program matter (`git`).
5. What differs is undone: new files go into `quarantine`, former contents are put back, and what was planted is removed
   from the snapshots of other commands. The caller and the log are told (`guard`).
6. Nothing is deleted. `trunkline protect` lists the quarantine, and takes an item back when its user says so.

Files at these paths are read and written through open folders, without following links (`nofollow`).
"""
