#include <stdio.h>

int main(void) {
    puts(STROBE_VERSION);
    return 0;
}
