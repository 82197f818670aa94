"""What agents must not plant below a root: files by which programs outside of any sandbox are run or believed."""
