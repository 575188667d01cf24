"""Many ranks in one process: each is captured under torch's fake process group."""
