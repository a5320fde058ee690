# libtegula_model: the runtime, on the public ops alone.
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET GLOBAL jansson)
# Unicode 14, which src/text/unicode/late_points.h counts on, came with 10.40.
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8>=10.40)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET GLOBAL libutf8proc)
set(runtime_libraries PkgConfig::jansson PkgConfig::pcre2 PkgConfig::utf8proc)
add_library(
  tegula_model_objects OBJECT
  files/file_error.c
  files/file_map.c
  files/hash128.c
  files/json_file.c
  files/json_scan.c
  files/utf8.c
  files/utf8_stream.c
  files/directories/atomic_directory.c
  files/directories/durable_file.c
  files/directories/kept_directories.c
  files/directories/leftover_directory.c
  files/directories/process_lock.c
  files/directories/target_directory.c
  files/safetensors/safetensors.c
  files/safetensors/safetensors_dtype.c
  files/safetensors/safetensors_entry.c
  files/safetensors/safetensors_writer.c
  text/added_tokens.c
  text/byte_tokenizer.c
  text/graph_added.c
  text/graph_reader.c
  text/kept_files.c
  text/token_lists.c
  text/tokenizer.c
  text/tokenizer_encode.c
  text/tokenizer_graph.c
  text/tokenizer_json.c
  text/tokenizer_pair.c
  text/bpe/byte_alphabet.c
  text/bpe/merge_table.c
  text/bpe/merging.c
  text/bpe/vocabulary.c
  text/unicode/late_points.c
  text/unicode/nfc.c
  text/unicode/pattern.c
  text/unicode/pattern_characters.c
  text/unicode/pattern_rewrite.c
  text/unicode/point_map.c
  text/unicode/unicode_tables.c
  chat/builtin_templates.c
  chat/chat_date.c
  chat/chat_render.c
  chat/chat_sources.c
  chat/chat_values.c
  chat/template_eval.c
  chat/template_loop.c
  chat/template_render.c
  chat/template_set.c
  chat/template_slice.c
  chat/builtins/template_attribute.c
  chat/builtins/template_braces.c
  chat/builtins/template_call.c
  chat/builtins/template_cut.c
  chat/builtins/template_filters.c
  chat/builtins/template_functions.c
  chat/builtins/template_methods.c
  chat/builtins/template_order.c
  chat/builtins/template_percent.c
  chat/builtins/template_search.c
  chat/builtins/template_selection.c
  chat/builtins/template_tests.c
  chat/syntax/template_lexer.c
  chat/syntax/template_literal.c
  chat/syntax/template_operators.c
  chat/syntax/template_parser.c
  chat/syntax/template_statements.c
  chat/syntax/template_suffix.c
  chat/values/template_arithmetic.c
  chat/values/template_case.c
  chat/values/template_compare.c
  chat/values/template_format.c
  chat/values/template_job.c
  chat/values/template_json.c
  chat/values/template_number.c
  chat/values/template_print.c
  chat/values/template_text.c
  chat/values/template_value.c
  model/activations.c
  model/model.c
  model/model_decoder.c
  model/preset.c
  model/rope_tables.c
  model/transformer.c
  model/transformer_bwd.c
  model/transformer_cache.c
  model/transformer_documents.c
  model/transformer_experts.c
  model/transformer_pages.c
  model/config/config.c
  model/config/config_experts.c
  model/config/config_gpt2.c
  model/config/config_keys.c
  model/config/config_llama.c
  model/config/config_qwen.c
  model/config/config_rope.c
  model/config/generation_config.c
  model/weights/dequantize.c
  model/weights/parameter_values.c
  model/weights/parameters.c
  model/weights/save.c
  model/weights/weight_files.c
  model/weights/weights.c
  model/weights/weights_mxfp4.c
  model/weights/weights_read.c
  model/weights/weights_write.c
  generation/block_pool.c
  generation/engine.c
  generation/engine_graphs.c
  generation/engine_memory.c
  generation/engine_pass.c
  generation/engine_pick.c
  generation/engine_request.c
  generation/free_memory.c
  generation/generate.c
  generation/logprobs.c
  generation/penalties.c
  generation/prefix_cache.c
  generation/sampler.c
  generation/scheduler.c
  generation/session.c
  generation/session_cache.c
  generation/session_forward.c
  generation/session_passes.c
  generation/stop_strings.c
  training/checkpoint.c
  training/micro_batches.c
  training/router_balance.c
  training/schedule.c
  training/trainer.c
  training/trainer_options.c
  training/trainer_record.c
  training/trainer_step.c)
target_link_libraries(tegula_model_objects PRIVATE tegula_flags ${runtime_libraries})
# Programs and modules take only the functions that they use (--gc-sections where they are linked).
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(tegula_model_objects PRIVATE -ffunction-sections -fdata-sections)
endif()

# Data to train on: of the command line, and of tests.
add_library(
  tegula_data_objects OBJECT
  data/answer_spans.c
  data/batches.c
  data/conversation_tokens.c
  data/corpus.c
  data/corpus_key.c
  data/data_files.c
  data/json_lines.c
  data/order.c
  data/packing.c
  data/template_key.c
  data/token_cache.c
  data/token_file.c
  data/token_store.c)
target_link_libraries(tegula_data_objects PRIVATE tegula_flags ${runtime_libraries})

# Static: what tests link; sees the internal symbols too.
add_library(tegula_model_static STATIC $<TARGET_OBJECTS:tegula_model_objects>)
target_link_libraries(tegula_model_static PUBLIC tegula_static ${runtime_libraries})

# Shared: the product; exports the public prototypes alone.
add_library(tegula_model SHARED $<TARGET_OBJECTS:tegula_model_objects>)
target_include_directories(tegula_model PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tegula_model PRIVATE tegula ${runtime_libraries} m)
# nodelete: once loaded it stays, as jansson keeps pointers to json_file.c's allocator.
target_link_options(tegula_model PRIVATE ${TEGULA_LINK_OPTIONS} -Wl,-z,nodelete)
set_target_properties(tegula_model PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 INSTALL_RPATH "$ORIGIN") # libtegula
