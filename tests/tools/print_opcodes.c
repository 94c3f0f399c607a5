/* Prints strobe's table of opcodes of a minor version, for tests that hold it against the interpreter:
 *
 *   print_opcodes MINOR    a line "NUMBER FAMILY ENTERS BASE CACHES" for each opcode that exists */
#include "cpython/opcode.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static const char *const families[] = {
        [OPCODE_INVALID] = "INVALID",
        [OPCODE_OTHER] = "OTHER",
        [OPCODE_CALL] = "CALL",
        [OPCODE_CALLS_PYTHON] = "CALLS_PYTHON",
        [OPCODE_RESUMES_GENERATOR] = "RESUMES_GENERATOR",
        [OPCODE_BY_THE_WAY] = "BY_THE_WAY",
        [OPCODE_CACHE] = "CACHE",
        [OPCODE_HIDDEN] = "HIDDEN",
    };
    if (argc != 2)
        return 2;
    const struct opcode *table = opcode_table((uint32_t)strtoul(argv[1], NULL, 10));
    for (int i = 0; i < OPCODES; i++)
        if (table[i].family != OPCODE_INVALID)
            printf("%d %s %d %d %d\n", i, families[table[i].family], table[i].enters, table[i].base, table[i].caches);
    return 0;
}
