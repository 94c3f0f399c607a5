/* Files with machine code, as far as they were asked about: what each says of an address. Shared by all processes that
 * are sampled, most of which have the same ones mapped. */
#ifndef STROBE_SAMPLER_CODE_FILES_H
#define STROBE_SAMPLER_CODE_FILES_H

#include "elf/machine_code.h"
#include "elf/symbol_table.h"
#include "elf/unwind_table.h"
#include "process/process.h"
#include "sampler/c_functions.h"
#include "sampler/eval_loop.h"

struct code_files;

enum code_kind {
    CODE_SYSTEM, /* on whose behalf the C library, the dynamic linker, an allocator ran, its caller tells */
    CODE_INTERPRETER,
    CODE_LIBRARY,
};

/* One file, or what the kernel maps by itself ("[vdso]"). Lives as long as the files. */
struct code_file {
    const char *path;
    enum code_kind kind;
    uint16_t machine;
    struct elf_file *file;         /* NULL when it could not be opened */
    struct code_file_state *state; /* private */
};

/* What an interpreter's file says of CPython. */
struct interpreter_code {
    struct eval_loop loop;
    struct c_functions *functions; /* NULL: none found */
};

enum status code_files_new(struct code_files **files) MUST_USE;
void code_files_free(struct code_files *files);

/* The file behind a mapping. It is opened when this process is the first that has it mapped: later it may be gone. NULL
 * when there is no memory for one more. */
struct code_file *code_files_take(struct code_files *files, struct process *process, const struct mapping *mapping);

/* In what follows addresses are in the file's own numbering. */

enum status code_file_read_row(struct code_files *files, const struct code_file *file, uint64_t address,
                               struct unwind_row *row) MUST_USE;
/* NULL: not known. */
const struct unwind_range *code_file_range(const struct code_file *file, uint64_t address);
/* The function that holds an address, from the symbols that the file has, or the debug file that was split off it as
 * `process` sees it. */
enum status code_file_symbol(struct code_file *file, struct process *process, uint64_t address,
                             struct symbol *symbol) MUST_USE;
/* What kind of call returns to an address, and where a direct one goes. */
enum machine_call code_file_call(const struct code_file *file, uint64_t address, uint64_t *target);
/* What it says of CPython, if it is one; eval_address: of _PyEval_EvalFrameDefault. NULL when it says nothing. */
const struct interpreter_code *code_file_interpreter(struct code_file *file, uint64_t eval_address);

#endif
