#include "unwind/call_sites.h"

#include "base/array.h"

#include <stdlib.h>

enum {
    MAX_SETS = 1 << 14,
    MAX_CALLEES = 1 << 16,
    SITES = 8,
    KINDS = CALL_CERTAIN + 1,
    /* What is certain and was seen so often is so. */
    SETTLED = 3,
    MAX_WEIGHT = 1 << 20,
    CODE_UNIT_BYTES = 2,
    EAGER_QUESTIONS = 32,
    LAZY_QUESTIONS = 16,
};

/* Of each kind of evidence: what was seen so many times less often than something else was not seen. */
static const uint32_t ratios[KINDS] = {[CALL_LIKELY] = 4, [CALL_COPIED] = 4, [CALL_CERTAIN] = 16};

/* Where one code calls another, and how often that was seen. */
struct site_set {
    struct site {
        int32_t instruction_bytes;
        uint32_t weights[KINDS]; /* all 0: free */
    } sites[SITES];
    uint32_t asked;
};

/* Instead of a callee's serial: it calls now this, now that. */
static const uint64_t SEVERAL = 0;

void call_sites_release(struct call_sites *sites) {
    map_release(&sites->sets_by_pair);
    map_release(&sites->callees);
    map_release(&sites->called);
    free(sites->sets);
    *sites = (struct call_sites){0};
}

void call_sites_forget(struct call_sites *sites) {
    map_clear(&sites->sets_by_pair);
    map_clear(&sites->callees);
    map_clear(&sites->called);
    sites->set_count = 0;
}

/* Serials are never given twice, so what is known of code that has died does no harm. */
static uint64_t pair_key(const struct code *caller, const struct code *callee) {
    return ((uint64_t)caller->serial << 32 | callee->serial) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t place_key(const struct code *caller, int32_t instruction_bytes) {
    return ((uint64_t)caller->serial << 32 | (uint32_t)instruction_bytes) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct site_set *find_set(const struct call_sites *sites, const struct code *caller, const struct code *callee) {
    uint64_t index = 0;
    return map_get(&sites->sets_by_pair, pair_key(caller, callee), &index) ? &sites->sets[index] : NULL;
}

static enum status add_set(struct call_sites *sites, const struct code *caller, const struct code *callee,
                           struct site_set **set) {
    if (sites->set_count >= MAX_SETS)
        call_sites_forget(sites);
    TRY(array_reserve((void **)&sites->sets, &sites->set_capacity, sites->set_count + 1, sizeof sites->sets[0]));
    TRY(map_set(&sites->sets_by_pair, pair_key(caller, callee), sites->set_count));
    *set = &sites->sets[sites->set_count++];
    **set = (struct site_set){0};
    return STATUS_OK;
}

/* Whether one site is worth less than another. */
static bool is_less(const struct site *site, const struct site *other) {
    for (size_t kind = KINDS; kind-- > 0;)
        if (site->weights[kind] != other->weights[kind])
            return site->weights[kind] < other->weights[kind];
    return false;
}

static void note_in_set(struct site_set *set, int32_t instruction_bytes, enum call_evidence evidence) {
    struct site *site = NULL, *least = &set->sites[0];
    for (size_t i = 0; i < SITES; i++) {
        if (set->sites[i].instruction_bytes == instruction_bytes)
            site = &set->sites[i];
        if (is_less(&set->sites[i], least))
            least = &set->sites[i];
    }
    if (site == NULL) {
        site = least;
        *site = (struct site){.instruction_bytes = instruction_bytes};
    }
    site->weights[evidence] += site->weights[evidence] < MAX_WEIGHT;
}

bool call_sites_excludes(const struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                         const struct code *callee) {
    uint64_t serial = 0;
    return map_get(&sites->callees, place_key(caller, instruction_bytes), &serial) && serial != SEVERAL &&
           serial != callee->serial;
}

static enum status note_callee(struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                               const struct code *callee) {
    uint64_t key = place_key(caller, instruction_bytes), serial = 0, times = 0;
    if (sites->called.count >= MAX_CALLEES)
        map_clear(&sites->called);
    (void)map_get(&sites->called, callee->serial, &times);
    TRY(map_set(&sites->called, callee->serial, times + 1));
    if (map_get(&sites->callees, key, &serial))
        return serial == callee->serial || serial == SEVERAL ? STATUS_OK : map_set(&sites->callees, key, SEVERAL);
    if (sites->callees.count >= MAX_CALLEES)
        map_clear(&sites->callees);
    return map_set(&sites->callees, key, callee->serial);
}

enum status call_sites_note(struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                            const struct code *callee, enum call_evidence evidence) {
    if (evidence == CALL_CERTAIN)
        TRY(note_callee(sites, caller, instruction_bytes, callee));
    else if (evidence == CALL_LIKELY && call_sites_excludes(sites, caller, instruction_bytes, callee))
        return STATUS_OK;
    struct site_set *set = find_set(sites, caller, callee);
    if (set == NULL)
        TRY(add_set(sites, caller, callee, &set));
    note_in_set(set, instruction_bytes, evidence);
    return STATUS_OK;
}

/* The best kind of evidence that there is, and the most that a site has of it. */
static enum call_evidence best_kind(const struct site_set *set, uint32_t *most) {
    *most = 0;
    for (size_t kind = KINDS; kind-- > 0;) {
        for (size_t i = 0; i < SITES; i++)
            *most = set->sites[i].weights[kind] > *most ? set->sites[i].weights[kind] : *most;
        if (*most > 0)
            return (enum call_evidence)kind;
    }
    return CALL_LIKELY;
}

bool call_sites_knows(const struct call_sites *sites, const struct code *caller, int32_t instruction_bytes,
                      const struct code *callee) {
    const struct site_set *set = find_set(sites, caller, callee);
    uint32_t most = 0;
    if (set == NULL || best_kind(set, &most) != CALL_CERTAIN)
        return false;
    for (size_t i = 0; i < SITES; i++) {
        uint32_t weight = set->sites[i].weights[CALL_CERTAIN];
        if (weight >= SETTLED && weight >= most / ratios[CALL_CERTAIN] &&
            set->sites[i].instruction_bytes == instruction_bytes)
            return true;
    }
    return false;
}

bool call_sites_calls(const struct call_sites *sites, const struct code *caller, const struct code *callee) {
    const struct site_set *set = find_set(sites, caller, callee);
    uint32_t most = 0;
    return set != NULL && best_kind(set, &most) == CALL_CERTAIN && most >= SETTLED;
}

bool call_sites_calls_elsewhere(const struct call_sites *sites, const struct code *caller, const struct code *callee) {
    const struct site_set *set = find_set(sites, caller, callee);
    uint32_t most = 0;
    uint64_t times = 0;
    if (set == NULL)
        return false;
    if (best_kind(set, &most) == CALL_CERTAIN)
        return most >= SETTLED;
    return set->asked >= EAGER_QUESTIONS && map_get(&sites->called, callee->serial, &times) && times >= SETTLED;
}

bool call_sites_asks(struct call_sites *sites, const struct code *caller, const struct code *callee) {
    struct site_set *set = find_set(sites, caller, callee);
    if (set == NULL && add_set(sites, caller, callee, &set) != STATUS_OK)
        return false;
    set->asked++;
    return set->asked <= EAGER_QUESTIONS || set->asked % LAZY_QUESTIONS == 0;
}

bool call_sites_is_settled(const struct call_sites *sites, const struct code *caller, const struct code *callee) {
    const struct site_set *set = find_set(sites, caller, callee);
    uint32_t most = 0;
    if (set == NULL)
        return false;
    return (best_kind(set, &most) == CALL_CERTAIN && most >= SETTLED) || set->asked >= EAGER_QUESTIONS;
}

/* Of two sites the one from which it more likely came to an instruction: the nearest before it, else (in a loop) the
 * last one. */
static bool is_nearer(int32_t site, int32_t other, int32_t instruction_bytes) {
    bool before = site <= instruction_bytes, other_before = other <= instruction_bytes;
    return before != other_before ? before : site > other;
}

/* The site in the set to choose, -1 if none. */
static int32_t choose_in_set(const struct call_sites *sites, const struct site_set *set, const struct code *caller,
                             const struct code *callee, int32_t instruction_bytes) {
    uint32_t most = 0;
    enum call_evidence kind = best_kind(set, &most);
    int32_t chosen = -1;
    for (size_t i = 0; i < SITES; i++) {
        int32_t site = set->sites[i].instruction_bytes;
        uint32_t weight = set->sites[i].weights[kind];
        if (weight == 0 || weight < most / ratios[kind] ||
            (kind == CALL_LIKELY && call_sites_excludes(sites, caller, site, callee)))
            continue;
        if (chosen < 0 || is_nearer(site, chosen, instruction_bytes))
            chosen = site;
    }
    return chosen;
}

/* The last place from `end` down to `start` that can call and of which nothing else is known; -1 if none. */
static int32_t find_place(const struct call_sites *sites, struct code_cache *codes, const struct code *caller,
                          const struct code *callee, int32_t start, int32_t end) {
    for (int32_t i = end; i >= start; i -= CODE_UNIT_BYTES) {
        enum opcode_family family = code_cache_step(codes, caller, i).family;
        if (family != OPCODE_OTHER && family != OPCODE_BY_THE_WAY && !call_sites_excludes(sites, caller, i, callee))
            return i;
    }
    return -1;
}

int32_t call_sites_guess(const struct call_sites *sites, struct code_cache *codes, const struct code *caller,
                         const struct code *callee, int32_t instruction_bytes) {
    const struct site_set *set = find_set(sites, caller, callee);
    int32_t site = set != NULL ? choose_in_set(sites, set, caller, callee, instruction_bytes) : -1;
    if (site < 0)
        site = find_place(sites, codes, caller, callee, 0, instruction_bytes);
    /* In a loop it is behind. */
    int32_t last = ((int32_t)caller->bytecode_bytes - 1) / CODE_UNIT_BYTES * CODE_UNIT_BYTES;
    if (site < 0)
        site = find_place(sites, codes, caller, callee, instruction_bytes, last);
    return site >= 0 ? site : instruction_bytes;
}
