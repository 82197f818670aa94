"""Trunkline beside its peers, in one run on one machine: `make bench`, or `python -m bench --quick`.

How to read the code, from the outside in:

- `peers.py`      what is compared; `launch.py` how each is started
- `workloads.py`  what is asked of them, and how much at a time
- `measure.py`    the order of a run: everything interleaved, disturbed windows marked
- `running.py`    one started peer: its processes, its handshake, one window of load
- `bars.py`       the limits Trunkline sets itself, computed from the same run
- `report.py`     RESULTS.md
- `native/`       load generator and backend in C; `fallback/` the same in Python

Linux only: CPU time, memory and process trees are read from /proc.
"""
