"""The simulator beside runs that others measured on GPUs: fitted on a part of them, judged on the rest."""
