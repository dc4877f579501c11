/* The release. What a program is exactly, its build id says (shm/seg.h). */
#pragma once
#define CONCLAVE_VERSION "0.1.0"
