"""What `torch.compile` does in a suite that nobody has changed: `--torchgraph-audit`.

How data flow; under pytest-xdist a worker runs the test and the controller reports:

    torch's trace
      WatchRecord            of each test (suite_watch)
      TestFacts              plain data (facts, read), with the teardown's report (auditor)
    TestFacts of all tests   in the process that reports (auditor)
      summary                by cause, with the number of tests (summary)
"""
