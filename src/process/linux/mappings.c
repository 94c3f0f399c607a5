#include "process/process.h"
