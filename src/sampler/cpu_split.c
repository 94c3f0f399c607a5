/* How the time of a sample is divided. What the thread's clocks say is the kernel's is the kernel's. The rest is one or
 * the other, told by the chain of C functions between the interrupted instruction and the evaluation loop:
 *
 * - none: the loop itself: python;
 * - one of them is in a library other than the interpreter and what serves everybody (libc, libm, …): native;
 * - else the interpreter does something itself. It is native when the Python instruction is a call and one of them is
 *   a C function that such a call enters (c_functions.h): the interpreter's own way there and back, the release of
 *   temporaries, the allocation of frames, a collection are not.
 */
#include "sampler/cpu_split.h"

#include "base/map.h"
#include "cpython/opcode.h"
#include "elf/symbol_name.h"
#include "sampler/code_map.h"
#include "unwind/native_stack.h"

#include <stdlib.h>
#include <string.h>

enum { CHAIN_MAX = 128, CALL_SITES_MAX = 1 << 12, CALLS_MAX = 1 << 16, KIND_BITS = 2 };

/* CPython has a compiler of its own from this minor version on (PEP 744). */
enum { FIRST_COMPILING_MINOR = 13 };

/* One function on the C stack. */
struct link {
    struct code_place place;
    remote_addr address;
};

/* From the interrupted instruction outwards, up to but without the evaluation loop. */
struct chain {
    struct link links[CHAIN_MAX];
    size_t count;
    bool reached_loop;
    remote_addr loop_address; /* where in it the outermost function returns to */
};

struct cpu_split {
    struct process *process;
    struct code_files *files;
    struct code_map *code;
    uint32_t minor;
    remote_addr eval_address;
    bool interpreter_looked_at;
    struct code_file *interpreter;
    const struct interpreter_code *interpreter_code; /* NULL: not known */
    struct map calls;                                /* what call returns to an address: its kind and target */
    struct map call_sites; /* indirect calls that were seen to enter C functions, by return address */
    struct symbol_names names;
    struct chain chain;
};

/* So that the interpreter's file is at hand when the process is gone. */
static void open_interpreter(struct cpu_split *split) {
    struct code_place place;
    if (split->eval_address != 0 && code_map_find(split->code, split->eval_address, &place) == STATUS_OK)
        split->interpreter = place.file;
    if (split->interpreter != NULL)
        split->interpreter->kind = CODE_INTERPRETER;
}

enum status cpu_split_new(struct process *process, const struct layout *layout, remote_addr eval_address,
                          struct code_files *files, struct cpu_split **result) {
    *result = NULL;
    struct cpu_split *split = calloc(1, sizeof *split);
    if (split == NULL)
        return STATUS_FAILED;
    split->process = process;
    split->files = files;
    split->minor = (uint32_t)layout_minor(layout);
    split->eval_address = eval_address;
    enum status status = code_map_new(process, files, &split->code);
    if (status != STATUS_OK) {
        cpu_split_free(split);
        return status;
    }
    open_interpreter(split);
    *result = split;
    return STATUS_OK;
}

void cpu_split_free(struct cpu_split *split) {
    if (split == NULL)
        return;
    code_map_free(split->code);
    map_release(&split->calls);
    map_release(&split->call_sites);
    symbol_names_release(&split->names);
    free(split);
}

/* Where the loop is and what its C functions are: only when there is a sample to be told. */
static void look_at_interpreter(struct cpu_split *split) {
    struct code_place place;
    split->interpreter_looked_at = true;
    if (split->interpreter != NULL && code_map_find(split->code, split->eval_address, &place) == STATUS_OK)
        split->interpreter_code = code_file_interpreter(place.file, place.address);
}

static bool is_in_loop(const struct cpu_split *split, const struct code_place *place) {
    return place->file != NULL && place->file == split->interpreter && split->interpreter_code != NULL &&
           eval_loop_holds(&split->interpreter_code->loop, place->address);
}

/* For a place of which no table says where its caller is. A word that only looks like a return address has no call in
 * front of it, save by chance. */
static bool is_return_address(void *context, remote_addr address) {
    struct cpu_split *split = context;
    struct code_place place;
    uint64_t target = 0;
    return code_map_find(split->code, address, &place) == STATUS_OK && place.file != NULL &&
           code_file_range(place.file, place.address) != NULL &&
           code_file_call(place.file, place.address, &target) != MACHINE_CALL_NONE;
}

static enum status step(struct cpu_split *split, struct native_stack *stack, const struct code_place *place) {
    struct unwind_row row;
    if (place->file != NULL && code_file_read_row(split->files, place->file, place->address, &row) == STATUS_OK) {
        enum status status = native_stack_step(stack, &row);
        if (status != STATUS_UNREADABLE)
            return status;
    }
    return native_stack_scan(stack, is_return_address, split);
}

/* Code in no file is that of a compiler at run time. CPython's own is entered from the loop, from 3.15 on through a
 * function of that name (Python/jit.c), and stands for the loop. */
static bool is_compiled_loop(struct cpu_split *split, const struct native_stack *at, const struct code_place *place) {
    struct native_stack stack = *at;
    struct code_place caller;
    struct symbol symbol;
    if (place->file != NULL || split->minor < FIRST_COMPILING_MINOR ||
        native_stack_scan(&stack, is_return_address, split) != STATUS_OK ||
        code_map_find(split->code, native_stack_place(&stack), &caller) != STATUS_OK)
        return false;
    return is_in_loop(split, &caller) ||
           (caller.file != NULL && caller.file == split->interpreter &&
            code_file_symbol(caller.file, split->process, caller.address, &symbol) == STATUS_OK &&
            strcmp(symbol.name, "_PyJIT_Entry") == 0);
}

static void follow_chain(struct cpu_split *split, const struct wire_sample *sample, const uint64_t *words) {
    struct chain *chain = &split->chain;
    struct native_stack stack = {
        .program_counter = sample->program_counter,
        .stack_pointer = sample->stack_pointer,
        .frame_pointer = sample->frame_register,
        .return_register = sample->return_register,
        .innermost = true,
        .words_address = sample->stack_pointer,
        .words = words,
        .word_count = sample->stack_words,
    };
    chain->count = 0;
    chain->reached_loop = false;
    while (chain->count < CHAIN_MAX) {
        struct code_place place;
        remote_addr address = native_stack_place(&stack);
        if (code_map_find(split->code, address, &place) != STATUS_OK)
            place = (struct code_place){.address = address};
        if (is_in_loop(split, &place) || is_compiled_loop(split, &stack, &place)) {
            chain->reached_loop = true;
            chain->loop_address = stack.program_counter;
            return;
        }
        chain->links[chain->count++] = (struct link){.place = place, .address = stack.program_counter};
        if (step(split, &stack, &place) != STATUS_OK)
            return;
    }
}

/* The innermost function that is in another library than the interpreter, or in none at all; NULL: there is none. */
static const struct link *find_library(const struct cpu_split *split) {
    for (size_t i = 0; i < split->chain.count; i++) {
        const struct link *link = &split->chain.links[i];
        if (link->place.file == NULL || link->place.file->kind == CODE_LIBRARY)
            return link;
    }
    return NULL;
}

/* Where the function of link `i` returns to. */
static remote_addr return_address(const struct chain *chain, size_t i) {
    return i + 1 < chain->count ? chain->links[i + 1].address : chain->reached_loop ? chain->loop_address : 0;
}

/* What kind of call returns to an address, and where a direct one goes to. */
static enum machine_call call_before(struct cpu_split *split, remote_addr address, uint64_t *target) {
    struct code_place place;
    uint64_t known = 0;
    if (map_get(&split->calls, address, &known)) {
        *target = known >> KIND_BITS;
        return (enum machine_call)(known & ((1 << KIND_BITS) - 1));
    }
    if (address == 0 || code_map_find(split->code, address, &place) != STATUS_OK || place.file == NULL)
        return MACHINE_CALL_NONE;
    enum machine_call kind = code_file_call(place.file, place.address, target);
    if (split->calls.count >= CALLS_MAX)
        map_clear(&split->calls);
    if (map_set(&split->calls, address, *target << KIND_BITS | kind) != STATUS_OK)
        return kind;
    return kind;
}

/* Where a C function was entered, another that is not known is entered too. */
static void remember_call_site(struct cpu_split *split, remote_addr address, enum machine_call call) {
    uint64_t known = 0;
    if (call != MACHINE_CALL_INDIRECT || map_get(&split->call_sites, address, &known) ||
        split->call_sites.count >= CALL_SITES_MAX)
        return;
    if (map_set(&split->call_sites, address, 1) != STATUS_OK)
        return;
}

static const struct c_function *function_at(const struct cpu_split *split, uint64_t address) {
    const struct interpreter_code *code = split->interpreter_code;
    return code != NULL && code->functions != NULL ? c_functions_find(code->functions, address) : NULL;
}

/* What link `i` is, or what was called there and has gone on to it by a jump. */
static const struct c_function *function_of(const struct cpu_split *split, size_t i, enum machine_call call,
                                            uint64_t target) {
    const struct code_place *place = &split->chain.links[i].place;
    const struct unwind_range *range =
        place->file != NULL && place->file == split->interpreter ? code_file_range(place->file, place->address) : NULL;
    const struct c_function *function = range != NULL ? function_at(split, range->start) : NULL;
    if (call == MACHINE_CALL_DIRECT && range != NULL &&
        (function == NULL || function->kind == C_FUNCTION_CONTINUATION)) {
        const struct c_function *called = function_at(split, target);
        return called != NULL ? called : function;
    }
    return function;
}

/* Whether link `i` is a C function that a call of Python's has entered. *name: what that is called, NULL: not known. */
static bool is_c_function(struct cpu_split *split, size_t i, const char **name) {
    const struct chain *chain = &split->chain;
    remote_addr back = return_address(chain, i);
    uint64_t target = 0, known = 0;
    enum machine_call call = call_before(split, back, &target);
    const struct c_function *function = function_of(split, i, call, target);
    bool entered = map_get(&split->call_sites, back, &known);
    *name = function != NULL ? function->name : NULL;
    if (function == NULL)
        return entered;
    switch (function->kind) {
    case C_FUNCTION_METHOD:
        remember_call_site(split, back, call);
        return true;
    case C_FUNCTION_SLOT:
        return true;
    case C_FUNCTION_SHORTCUT:
        return entered || call == MACHINE_CALL_INDIRECT || (chain->reached_loop && i + 1 == chain->count);
    case C_FUNCTION_CONTINUATION:
        return entered || call == MACHINE_CALL_INDIRECT;
    case C_FUNCTION_UPKEEP:
        return false;
    }
    return false;
}

/* The C function of the interpreter's own that a call of Python's has entered; NULL: none. */
static const struct link *find_c_function(struct cpu_split *split, const char **name) {
    struct chain *chain = &split->chain;
    /* From the loop inwards: what was called first is what the line called. */
    for (size_t i = chain->count; i-- > 0;)
        if (is_c_function(split, i, name))
            return &chain->links[i];
    /* What went deeper than was copied is no way to somewhere. */
    *name = NULL;
    return chain->reached_loop || chain->count == 0 ? NULL : &chain->links[chain->count - 1];
}

/* The innermost function with a name, from link `first` on, that is in the same file. */
static const char *find_name(struct cpu_split *split, const struct link *first) {
    const struct chain *chain = &split->chain;
    for (const struct link *link = first; link < chain->links + chain->count; link++) {
        struct symbol symbol;
        if (link->place.file != first->place.file)
            break;
        if (link->place.file != NULL &&
            code_file_symbol(link->place.file, split->process, link->place.address, &symbol) == STATUS_OK)
            return symbol_names_plain(&split->names, symbol.name);
    }
    return NULL;
}

static void name_library(struct cpu_split *split, const struct link *link, struct sample_cpu *cpu) {
    if (link->place.file == NULL)
        return;
    cpu->library = link->place.file->path;
    cpu->function = find_name(split, link);
}

/* Of a thread without Python: the innermost function that is not the system's, else the innermost. */
static void name_outside(struct cpu_split *split, struct sample_cpu *cpu) {
    const struct chain *chain = &split->chain;
    size_t i = 0;
    while (i < chain->count && chain->links[i].place.file != NULL && chain->links[i].place.file->kind == CODE_SYSTEM)
        i++;
    if (chain->count > 0)
        name_library(split, &chain->links[i < chain->count ? i : 0], cpu);
}

/* Whether the Python instruction is a call, as far as is known. */
static bool can_be_call(enum opcode_family family) {
    return family == OPCODE_CALL || family == OPCODE_HIDDEN || family == OPCODE_INVALID || family == OPCODE_CACHE;
}

/* Whether the sample is of native code, and of which. */
static bool is_native(struct cpu_split *split, const struct wire_sample *sample, bool in_python,
                      struct sample_cpu *cpu) {
    const char *name = NULL;
    enum opcode_family family = opcode_family(split->minor, (uint8_t)sample->code_unit);
    if (split->chain.reached_loop && split->chain.count == 0)
        return false;
    const struct link *library = find_library(split);
    if (library != NULL) {
        name_library(split, library, cpu);
        return true;
    }
    if (!in_python) {
        name_outside(split, cpu);
        return true;
    }
    const struct link *entered = can_be_call(family) ? find_c_function(split, &name) : NULL;
    if (entered == NULL)
        return false;
    cpu->library = split->interpreter != NULL ? split->interpreter->path : NULL;
    cpu->function = name != NULL && name[0] != '\0' ? name : find_name(split, entered);
    return true;
}

/* The kernel estimates how much of a thread's time it spent itself by what its ticks found, and what it says adds up
 * over time. */
static uint64_t kernel_part(const struct wire_sample *before, const struct wire_sample *sample, uint64_t weight_ns) {
    uint64_t user_us = sample->user_us, system_us = sample->system_us;
    if (before != NULL) {
        user_us = user_us > before->user_us ? user_us - before->user_us : 0;
        system_us = system_us > before->system_us ? system_us - before->system_us : 0;
    }
    double both_us = (double)user_us + (double)system_us;
    return both_us > 0 ? (uint64_t)((double)weight_ns * ((double)system_us / both_us)) : 0;
}

void cpu_split_take(struct cpu_split *split, const struct wire_sample *before, const struct wire_sample *sample,
                    const uint64_t *words, bool in_python, uint64_t weight_ns, struct sample_cpu *cpu) {
    *cpu = (struct sample_cpu){0};
    code_map_refresh(split->code, sample->program_counter, sample->time_ns);
    if (!split->interpreter_looked_at)
        look_at_interpreter(split);
    follow_chain(split, sample, words);
    bool native = is_native(split, sample, in_python, cpu);
    cpu->kernel_ns = kernel_part(before, sample, weight_ns);
    if (cpu->kernel_ns > weight_ns)
        cpu->kernel_ns = weight_ns;
    if (native)
        cpu->native_ns = weight_ns - cpu->kernel_ns;
    else
        cpu->python_ns = weight_ns - cpu->kernel_ns;
}
