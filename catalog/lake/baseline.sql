CREATE TABLE documents (document_id VARCHAR, source VARCHAR, uri VARCHAR, title VARCHAR, metadata VARCHAR, unit VARCHAR,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE images (image_id VARCHAR, document_id VARCHAR, position INTEGER, url VARCHAR, alt_text VARCHAR,
    sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, n_bytes BIGINT, animated BOOLEAN,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE sentences (sentence_id VARCHAR, document_id VARCHAR, position INTEGER, text VARCHAR, content VARCHAR,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE payloads (sha256 VARCHAR, bytes BLOB, uri VARCHAR, "offset" BIGINT, length BIGINT, shard VARCHAR,
    "commit" BIGINT);
CREATE TABLE inputs (uri VARCHAR, size BIGINT, etag VARCHAR, source VARCHAR, retries INTEGER, reader VARCHAR,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE image_content (sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, n_bytes BIGINT,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_content (content VARCHAR, text VARCHAR, shard VARCHAR, "commit" BIGINT);
CREATE TABLE image_quality (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, sharpness DOUBLE,
    brightness DOUBLE, colourfulness DOUBLE, image_entropy DOUBLE);
CREATE TABLE image_hash (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, phash UBIGINT);
CREATE TABLE image_embedding (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, image_vector BLOB);
CREATE TABLE sentence_quality (content VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, n_words INTEGER,
    text_entropy DOUBLE, has_url BOOLEAN, has_emoji BOOLEAN, is_boilerplate BOOLEAN, language VARCHAR);
CREATE TABLE sentence_embedding (content VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, sentence_vector BLOB);
CREATE TABLE duplicate_edges (a VARCHAR, b VARCHAR, kind VARCHAR, distance DOUBLE, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE image_groups (sha256 VARCHAR, group_id VARCHAR, group_size INTEGER, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE centroids (kind VARCHAR, cluster INTEGER, vector BLOB, n BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE clusters (kind VARCHAR, key VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, cluster INTEGER);
CREATE TABLE vector_index (key VARCHAR, cluster INTEGER, probe INTEGER, index_vector BLOB, shard VARCHAR,
    scorer VARCHAR, "commit" BIGINT);
CREATE TABLE match_candidates (sha256 VARCHAR, content VARCHAR, similarity DOUBLE, shard VARCHAR, scorer VARCHAR,
    "commit" BIGINT);
CREATE TABLE image_similarity (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    alt_similarity DOUBLE, match_similarity DOUBLE, best_similarity DOUBLE);
CREATE TABLE captions (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, captioner VARCHAR,
    prompt VARCHAR, text VARCHAR, status VARCHAR, n_tokens INTEGER, seconds DOUBLE, finish_reason VARCHAR,
    prompt_tokens INTEGER, retries INTEGER);
CREATE TABLE caption_similarity (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    caption_similarity DOUBLE);
CREATE TABLE tags (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, tags VARCHAR[],
    tag_similarities DOUBLE[]);
CREATE TABLE synthetic (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    prompt VARCHAR, synthetic_text VARCHAR, synthetic_status VARCHAR, n_tokens INTEGER, seconds DOUBLE,
    finish_reason VARCHAR, prompt_tokens INTEGER, retries INTEGER, synthetic_unsupported INTEGER);
CREATE TABLE quarantine (item VARCHAR, source VARCHAR, stage VARCHAR, reason VARCHAR, detail VARCHAR,
    payload_ref VARCHAR, run_id VARCHAR, shard VARCHAR, "commit" BIGINT);
CREATE TABLE partitions ("table" VARCHAR, partition_id VARCHAR, shard VARCHAR, scorer VARCHAR, rows BIGINT,
    bytes BIGINT, seconds DOUBLE, run_id VARCHAR, "commit" BIGINT, path VARCHAR,
    in_content_order BOOLEAN DEFAULT false);
CREATE TABLE scorers (digest VARCHAR, name VARCHAR, version INTEGER, settings VARCHAR, model VARCHAR,
    made_from VARCHAR[], libraries VARCHAR, "commit" BIGINT);
CREATE TABLE runs (run_id VARCHAR, flow VARCHAR, recipe VARCHAR, state VARCHAR, started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ, detail VARCHAR);
CREATE TABLE commits ("commit" BIGINT, run_id VARCHAR, step VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE bans (sha256 VARCHAR, reason VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE exports (dataset VARCHAR, version INTEGER, format VARCHAR, uri VARCHAR, files BIGINT, rows BIGINT,
    bytes BIGINT, "at" TIMESTAMPTZ);
CREATE TABLE datasets (name VARCHAR, version INTEGER, recipe VARCHAR, recipe_digest VARCHAR, scorers VARCHAR[],
    "commit" BIGINT, content_digest VARCHAR, amended BOOLEAN, n_pairs BIGINT, recall DOUBLE, run_id VARCHAR,
    created_at TIMESTAMPTZ);
CREATE TABLE pairs (dataset VARCHAR, version INTEGER, image_id VARCHAR, sha256 VARCHAR, document_id VARCHAR,
    raw_image_url VARCHAR, text1 VARCHAR, text2 VARCHAR, text3 VARCHAR, syn_text VARCHAR, caption VARCHAR,
    alt_text VARCHAR, tags VARCHAR[], width INTEGER, height INTEGER, similarity1 DOUBLE, similarity2 DOUBLE,
    similarity3 DOUBLE, best_similarity DOUBLE, cluster INTEGER, caption_status VARCHAR, synthetic_status VARCHAR,
    caption_similarity DOUBLE, synthetic_similarity DOUBLE, captioner VARCHAR, text4 VARCHAR, text5 VARCHAR,
    similarity4 DOUBLE, similarity5 DOUBLE);
CREATE TABLE decisions (dataset VARCHAR, version INTEGER, item_id VARCHAR, kind VARCHAR, dropped_by VARCHAR,
    value VARCHAR, failed UBIGINT);
CREATE TABLE funnel (dataset VARCHAR, version INTEGER, kind VARCHAR, position INTEGER, rule VARCHAR, n_in BIGINT,
    n_dropped BIGINT);
CREATE TABLE run_recipes (run_id VARCHAR, recipe VARCHAR, sources VARCHAR[]);
CREATE TABLE links (url VARCHAR, document_id VARCHAR, position INTEGER, alt_text VARCHAR, source VARCHAR,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE fetches (url VARCHAR, final_url VARCHAR, http_status INTEGER, content_type VARCHAR, etag VARCHAR,
    last_modified VARCHAR, sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, animated BOOLEAN,
    n_bytes BIGINT, exif VARCHAR, reason VARCHAR, detail VARCHAR, passing BOOLEAN, attempts INTEGER, seconds DOUBLE,
    fetched_at TIMESTAMPTZ, shard VARCHAR, "commit" BIGINT);
CREATE TABLE superseded (document_id VARCHAR, gone BOOLEAN, "commit" BIGINT);
CREATE TABLE rereads (source VARCHAR, unit VARCHAR, "commit" BIGINT);
CREATE TABLE word_counts (word VARCHAR, n BIGINT, shard VARCHAR, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE word_probabilities (word VARCHAR, p DOUBLE, sentences BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE thresholds (digest VARCHAR, kind VARCHAR, rule VARCHAR, "drop" DOUBLE, scorers VARCHAR[], threshold DOUBLE,
    n BIGINT, n_dropped BIGINT, run_id VARCHAR, "commit" BIGINT);
CREATE TABLE noun_counts (phrase VARCHAR, is_plural BOOLEAN, n BIGINT, shard VARCHAR, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE tag_words (position INTEGER, word VARCHAR, mined BOOLEAN, sentences BIGINT, grounding DOUBLE,
    threshold DOUBLE, pictures BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_edges (a VARCHAR, b VARCHAR, kind VARCHAR, distance DOUBLE, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_groups (content VARCHAR, group_id VARCHAR, group_size INTEGER, cluster INTEGER, scorer VARCHAR,
    "commit" BIGINT);
CREATE TABLE waves (run_id VARCHAR, wave INTEGER, asked BIGINT, passed BIGINT, kept BIGINT, "commit" BIGINT);
CREATE TABLE usage (partition_id VARCHAR, run_id VARCHAR, scorer VARCHAR, rows BIGINT, seconds DOUBLE,
    prompt_tokens BIGINT, tokens BIGINT, discarded_tokens BIGINT, retries BIGINT, cost DOUBLE, "commit" BIGINT);
CREATE TABLE probes (run_id VARCHAR, model VARCHAR, endpoint VARCHAR, server VARCHAR, answers VARCHAR[],
    agreement DOUBLE, "at" TIMESTAMPTZ);
CREATE TABLE dataset_captioners (dataset VARCHAR, version INTEGER, position INTEGER, captioner VARCHAR, scorer VARCHAR,
    similarity_scorer VARCHAR);
CREATE TABLE file_digests (path VARCHAR, sha256 VARCHAR);
CREATE TABLE unbelieved_usage (partition_id VARCHAR, run_id VARCHAR, scorer VARCHAR, unbelieved_prompt_tokens BIGINT,
    unbelieved_tokens BIGINT, "commit" BIGINT);
CREATE TABLE dropped_versions (name VARCHAR, version INTEGER, content_digest VARCHAR, n_pairs BIGINT,
    created_at TIMESTAMPTZ, dropped_at TIMESTAMPTZ);
CREATE TABLE judgement_samples (sample_id VARCHAR, dataset VARCHAR, version INTEGER, content_digest VARCHAR,
    rule VARCHAR, quantity VARCHAR, threshold DOUBLE, population BIGINT, seed VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE judgements (judgement_id VARCHAR, sample_id VARCHAR, position BIGINT, image_id VARCHAR, text VARCHAR,
    value DOUBLE, verdict VARCHAR, judge VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE takedowns (takedown_id VARCHAR, reason VARCHAR, report VARCHAR, "commit" BIGINT, "at" TIMESTAMPTZ);
CREATE TABLE taken_bans (kind VARCHAR, value VARCHAR, takedown_id VARCHAR);
CREATE TABLE amended_versions (dataset VARCHAR, version INTEGER, takedown_id VARCHAR, digest_before VARCHAR,
    digest_after VARCHAR, pairs_removed BIGINT, pairs_changed BIGINT);
CREATE TABLE amended_pairs (dataset VARCHAR, version INTEGER, takedown_id VARCHAR, sha256 VARCHAR, before VARCHAR,
    after VARCHAR);
CREATE VIEW lease AS SELECT holder, run_id, purpose, heartbeat::TIMESTAMPTZ AS heartbeat,
    expires::TIMESTAMPTZ AS expires, waiting FROM __ducklake_metadata_lake.pairmill_lease;
CREATE VIEW matches AS SELECT sha256, CAST(row_number() OVER (PARTITION BY scorer, sha256 ORDER BY similarity DESC,
    content) AS INTEGER) AS rank, content, similarity, shard, scorer, "commit" FROM match_candidates;
CREATE VIEW sentence_repeats AS SELECT content, count(*) AS repeats FROM sentences GROUP BY content;
CREATE VIEW fetched AS SELECT * FROM fetches QUALIFY row_number() OVER (PARTITION BY url ORDER BY "commit" DESC) = 1;
