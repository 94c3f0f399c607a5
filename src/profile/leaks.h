/* Whether a line that holds more and more is likely a leak: docs/leaks.md says what is asked for, and why. */
#ifndef STROBE_PROFILE_LEAKS_H
#define STROBE_PROFILE_LEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many moments, evenly spread over a process's life, are looked at. */
enum { LEAK_MOMENTS = 96 };

/* What a line held at `count` moments, at most LEAK_MOMENTS, and what is known of it otherwise. */
struct leak_evidence {
    const uint64_t *times_ns;
    const uint64_t *bytes;
    size_t count;
    uint64_t variance;      /* of the last amount, in KiB² */
    uint64_t survivors;     /* blocks live at the last moment, */
    uint64_t survivors_mid; /* and at the middle one */
    /* The line is a module's own code, which runs once, and the program came to its end by itself. */
    bool is_script;
};

struct leak_verdict {
    double likelihood;  /* by the rule of succession: that the next change of the least that is held is again an
                         * increase beyond all that it was */
    double bytes_per_s; /* the median of the slopes between all pairs of moments (Theil and Sen) */
    double age_s;       /* how long at least half of what is live has been there, if nothing older was given back */
    size_t rises;       /* how often the least came to be more than ever */
};

/* Whether it is a leak. */
bool leak_judge(const struct leak_evidence *evidence, struct leak_verdict *verdict);

#endif
