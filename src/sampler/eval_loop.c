/* What a symbol calls _PyEval_EvalFrameDefault is, in an optimised build, only the part of it that runs most often, and
 * can be the smaller one. Two things lead to the others:
 *
 * - the table of the instructions' addresses, 256 words (Python/opcode_targets.h, for computed gotos: 3.8 to 3.15;
 *   `instruction_funcptr_table` in builds with tail calls, 3.14 and later);
 * - direct jumps from one part into another.
 */
#include "sampler/eval_loop.h"

#include "base/bytes.h"
#include "elf/machine_code.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPCODES = 256,
    HITS_MIN = 3,       /* jumps into a range's middle that are not taken for something else's bytes */
    PARTS_MAX = 8,      /* that a compiler makes of one function: hot, cold, and what was laid out apart */
    HANDLERS_MIN = 128, /* different functions in a table of handlers; there are more than 200 instructions */
    JUMPS_MAX = 1 << 14,
    CODE_MAX_BYTES = 4 << 20,
    ALL_CODE_MAX_BYTES = 64 << 20,
    ROUNDS_MAX = 8,
};

/* One that is being found. */
struct search {
    struct elf_file *file;
    const struct elf_data *data;
    const struct unwind_table *table;
    uint16_t machine;
    struct eval_loop *loop;
    size_t code_left; /* bytes of it that are still to be searched for jumps */
    size_t tables;    /* of instructions that were found */
    bool handlers;    /* the instructions are functions of their own */
};

static bool has_range(const struct eval_loop *loop, const struct unwind_range *range) {
    for (size_t i = 0; i < loop->count; i++)
        if (loop->ranges[i].start == range->start)
            return true;
    return false;
}

static void add_range(struct eval_loop *loop, const struct unwind_range *range) {
    if (loop->count < EVAL_LOOP_RANGES_MAX && !has_range(loop, range))
        loop->ranges[loop->count++] = *range;
}

/* The ranges that the words of a table point into. */
struct targets {
    const struct unwind_range *ranges[OPCODES];
    size_t count; /* of different ranges */
    bool starts;  /* all of them are where their range begins */
};

/* False when a word points to no code. */
static bool read_targets(const struct search *search, const uint8_t *words, struct targets *targets) {
    *targets = (struct targets){.starts = true};
    for (size_t i = 0; i < OPCODES; i++) {
        uint64_t word = load_u64(words + 8 * i);
        const struct unwind_range *range =
            elf_data_is_code(search->data, word) ? unwind_table_find(search->table, word) : NULL;
        if (range == NULL)
            return false;
        targets->starts = targets->starts && range->start == word;
        size_t known = 0;
        while (known < targets->count && targets->ranges[known] != range)
            known++;
        if (known == targets->count)
            targets->ranges[targets->count++] = range;
    }
    return true;
}

/* Labels are in few functions, one of which is known, and handlers are functions themselves. */
static bool is_instruction_table(const struct search *search, const struct targets *targets) {
    if (search->handlers)
        return targets->starts && targets->count >= HANDLERS_MIN;
    if (targets->starts || targets->count > PARTS_MAX)
        return false;
    for (size_t i = 0; i < targets->count; i++)
        if (has_range(search->loop, targets->ranges[i]))
            return true;
    return false;
}

static bool is_code_word(const struct search *search, const uint8_t *word) {
    return elf_data_is_code(search->data, load_u64(word));
}

static void try_table(struct search *search, const uint8_t *words) {
    struct targets targets;
    if (!read_targets(search, words, &targets) || !is_instruction_table(search, &targets))
        return;
    search->tables++;
    for (size_t i = 0; i < targets.count; i++)
        add_range(search->loop, targets.ranges[i]);
}

/* Looks at both ends of each run of words that point to code and are no fewer than the instructions. */
static void search_run(struct search *search, const struct elf_data_run *run) {
    uint64_t first = (8 - run->address % 8) % 8, at = first;
    for (size_t length = 0; at + 8 <= run->size_bytes; at += 8) {
        bool code = is_code_word(search, run->bytes + at);
        length = code ? length + 1 : 0;
        bool last = at + 16 > run->size_bytes || !is_code_word(search, run->bytes + at + 8);
        if (length >= OPCODES && (last || length % OPCODES == 0))
            try_table(search, run->bytes + at + 8 - 8 * OPCODES);
    }
}

static void search_tables(struct search *search) {
    size_t count = 0;
    const struct elf_data_run *runs = elf_data_runs(search->data, &count);
    for (size_t i = 0; i < count; i++)
        search_run(search, &runs[i]);
}

static int compare_addresses(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Handlers end in jumps to functions of their kind and to nothing else. Of a loop in one function, the other parts are
 * entered in their middle; what is only entered where it begins is a function that is called last. */
static bool is_part(const struct search *search, const struct unwind_range *range, const uint64_t *targets,
                    size_t count) {
    size_t middle = 0;
    for (size_t i = 0; i < count; i++)
        middle += targets[i] != range->start;
    return search->handlers || (count >= HITS_MIN && middle > 0);
}

static void follow_jumps(struct search *search, const uint64_t *targets, size_t count) {
    for (size_t i = 0, next = 0; i < count; i = next) {
        const struct unwind_range *range = unwind_table_find(search->table, targets[i]);
        next = i + 1;
        if (range == NULL)
            continue;
        while (next < count && targets[next] < range->end)
            next++;
        if (is_part(search, range, targets + i, next - i))
            add_range(search->loop, range);
    }
}

/* All jumps that leave the ranges known so far, sorted: whether that brought new ranges. */
static bool search_jumps(struct search *search, uint64_t *targets, uint8_t *code) {
    size_t count = 0, known = search->loop->count;
    for (size_t i = 0; i < known; i++) {
        const struct unwind_range *range = &search->loop->ranges[i];
        size_t size = (size_t)(range->end - range->start);
        if (size > CODE_MAX_BYTES || size > search->code_left ||
            elf_file_read(search->file, range->start, code, size) != STATUS_OK)
            continue;
        search->code_left -= size;
        size_t found =
            machine_code_jumps(search->machine, code, size, range->start, targets + count, JUMPS_MAX - count);
        count = found < JUMPS_MAX - count ? count + found : JUMPS_MAX;
    }
    qsort(targets, count, sizeof *targets, compare_addresses);
    follow_jumps(search, targets, count);
    return search->loop->count > known;
}

static int compare_ranges(const void *left, const void *right) {
    const struct unwind_range *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static void search_all(struct search *search, uint64_t *targets, uint8_t *code) {
    (void)search_jumps(search, targets, code);
    search_tables(search);
    if (search->tables == 0) {
        search->handlers = true;
        search_tables(search);
        search->handlers = search->tables > 0;
    }
    for (int round = 0; round < ROUNDS_MAX && search_jumps(search, targets, code); round++)
        continue;
}

enum status eval_loop_find(struct elf_file *file, const struct elf_data *data, const struct unwind_table *table,
                           uint64_t address, struct eval_loop *loop) {
    struct search search = {.file = file,
                            .data = data,
                            .table = table,
                            .machine = elf_file_machine(file),
                            .loop = loop,
                            .code_left = ALL_CODE_MAX_BYTES};
    const struct unwind_range *entry = unwind_table_find(table, address);
    uint64_t *targets = malloc(JUMPS_MAX * sizeof *targets);
    uint8_t *code = malloc(CODE_MAX_BYTES);
    loop->count = 0;
    if (entry != NULL && targets != NULL && code != NULL) {
        add_range(loop, entry);
        search_all(&search, targets, code);
        qsort(loop->ranges, loop->count, sizeof loop->ranges[0], compare_ranges);
    }
    free(targets);
    free(code);
    return loop->count > 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

bool eval_loop_holds(const struct eval_loop *loop, uint64_t address) {
    size_t low = 0, high = loop->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loop->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < loop->count && loop->ranges[low].start <= address;
}
