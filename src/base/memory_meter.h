/* What reading a target may cost. A target that is damaged, or made to be expensive, must not keep strobe busy forever:
 * whoever looks sets a budget, and reads through a meter. */
#ifndef STROBE_BASE_MEMORY_METER_H
#define STROBE_BASE_MEMORY_METER_H

#include "base/memory.h"

#include <stdbool.h>

struct budget {
    uint64_t reads_left;
    uint64_t bytes_left;
    bool exhausted; /* something was refused; all that follows is */
};

/* Takes from the budget. STATUS_LIMIT when there is not that much left. A NULL budget has no end. */
enum status budget_take(struct budget *budget, uint64_t reads, uint64_t bytes) MUST_USE;

/* A reader that charges what it reads. Several may share a budget. The fields are private; `memory` is what readers are
 * given. */
struct memory_meter {
    struct memory memory;
    struct memory *below;
    struct budget *budget;
};

/* Both are borrowed. */
void memory_meter_init(struct memory_meter *meter, struct memory *below, struct budget *budget);

#endif
