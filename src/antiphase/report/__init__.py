"""Report: answers in, figures, tables and pages out; never runs a model. Callable: `antiphase.report(run, ...)`."""

import antiphase

antiphase._make_callable(__name__)
