/* What headers of launchers need of CUDA: the stream's type, without CUDA's headers, so that plain
 * C can include them. */
#pragma once

typedef struct CUstream_st *cudaStream_t; /* as the runtime declares it */

#ifdef __cplusplus
#define CUDA_BEGIN extern "C" {
#define CUDA_END }
#else
#define CUDA_BEGIN
#define CUDA_END
#endif
