"""Reports of a run: sections for failed comparisons and checks, artifacts, the HTML page.

    mismatch       of a failed comparison: the assertion message, the section of the test's report
                   (`add_comparisons`), texts and pictures
    failed_check   of a failed check: its picture, and a traceback that ends at the user's line
    comparisons    failed comparisons as plain data (`data_of`), and the pending updates of a test
    causes         the terminal summary, which merges the plain data of all tests (`Comparisons`)
    artifacts      the directory of pictures, texts and pending updates
    test_case      isolation and comparisons of `GraphTestCase`
    page/          the HTML page of a run
    surfaces/      an audit as JSON, on GitHub and in JUnit XML

`plugin` calls the first two from its hooks, and registers the plugins of the others.
"""
