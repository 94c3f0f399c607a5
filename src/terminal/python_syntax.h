/* The lines of a Python file in coloured pieces. A tokenizer for the eye: what it takes for a string or a comment is
 * one in any program that runs, and of what is none, nothing is asked. */
#ifndef STROBE_TERMINAL_PYTHON_SYNTAX_H
#define STROBE_TERMINAL_PYTHON_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>

enum syntax_kind {
    SYNTAX_PLAIN,
    SYNTAX_KEYWORD,
    SYNTAX_STRING,
    SYNTAX_COMMENT,
    SYNTAX_NUMBER,
    SYNTAX_NAME, /* that a def or class introduces, and decorators */
};

/* What a line begins in the middle of. All zero at the start of a file. */
struct syntax_state {
    char quote;      /* of the string that is open; 0: none */
    bool is_triple;  /* it ends with three of them */
    bool is_f;       /* braces in it hold code, quotes too */
    bool names_next; /* the next name is what def or class introduces */
};

/* The piece that `text`, the rest of a line, begins with: returns its length (0 only for an empty text) and what it is,
 * and moves the state on. `is_start`: nothing but blanks came before it in the line. */
size_t syntax_next(struct syntax_state *state, const char *text, size_t size_bytes, bool is_start,
                   enum syntax_kind *kind);
/* The end of a line: strings that need more quotes than one go on. `text` is the whole line. */
void syntax_end_line(struct syntax_state *state, const char *text, size_t size_bytes);

#endif
