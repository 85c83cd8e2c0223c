"""Theory: what the paper states, held against a trained model. Callable: `antiphase.theory(run, base)`."""

import antiphase

antiphase._make_callable(__name__)
