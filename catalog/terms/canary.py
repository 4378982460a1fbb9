"""Name the rows of `funnel` that count how many wrong texts each rule on pairs accepted."""

KIND = "canary"  # beside 'image' and 'sentence', whose rows count what a rule dropped
