-- Pictures with what their files and all current documents that hold them state of licence and credit. A statement is
-- the first of these names that the metadata of a page (HTML, WARC) or the columns of a table have.
WITH stated AS (
    SELECT DISTINCT document_id, {
        'licence': list_filter(json_extract_string(metadata, ['/license', '/licence', '/License', '/LICENSE',
            '/license_name', '/dcterms.license', '/rights', '/dc.rights', '/dcterms.rights', '/usage_terms']),
            said -> trim(said) <> '')[1],
        'licence_url': list_filter(json_extract_string(metadata, ['/license_url', '/licence_url', '/License_URL',
            '/LICENSE_URL', '/license_link']), said -> trim(said) <> '')[1],
        'attribution': list_filter(json_extract_string(metadata, ['/attribution', '/credit', '/Credit',
            '/photographer', '/artist']), said -> trim(said) <> '')[1],
        'author': list_filter(json_extract_string(metadata, ['/author', '/Author', '/creator', '/dc.creator']),
            said -> trim(said) <> '')[1]} AS said
    FROM documents
    WHERE metadata NOT IN ('', '{}') AND document_id NOT IN $gone AND document_id IN (SELECT document_id FROM $shown)),
of_pictures AS (
    SELECT sha256, list_sort(list(DISTINCT said)) AS documents FROM $shown JOIN stated USING (document_id)
    WHERE said.licence <> '' OR said.licence_url <> '' OR said.attribution <> '' OR said.author <> '' GROUP BY sha256)
SELECT c.shard, c.sha256, coalesce(d.documents, []) AS documents,
    {'file_licence': f.file_licence, 'exif_rights': f.exif_rights, 'file_creator': f.file_creator} AS claims,
    left(sha256(CAST(to_json({'claims': claims, 'documents': documents}) AS VARCHAR)), 32) AS digest
FROM $claims f JOIN image_content c ON c.sha256 = f.sha256 LEFT JOIN of_pictures d ON d.sha256 = f.sha256
